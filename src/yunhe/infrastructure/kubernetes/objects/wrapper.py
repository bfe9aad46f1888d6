"""What runs in the container: a fixed text of POSIX sh that takes everything else as arguments."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MARK = b"\x1e"
"""The record separator: begins and ends a line that tells where a step begins."""

# Words of caution for whoever changes it: the kubelet expands "dollar parenthesis" and "dollar dollar" in a command,
# so neither may stand here. Process 1 of a container has no default for signals: TERM must be handed on. Shells tell of
# children that a signal ended: that is no output of the task, so only the steps write to the log. A step without a
# first line that says otherwise is a script of bash, else of sh, and its files are its own, as on every engine. What handles TERM says how
# it ended; but a step that then ends well has not done what the steps after it would have. What the record separator
# divides in the note is the step from the reason why no step is to blame; "before step 1" is step 0 in the log. A wait that
# a signal cut short is repeated: the shell may have taken note of the end by itself, and still knows how it was.
# "rest" signals what else lives here (0: only looks): all in the container, or in our group where we are not process 1;
# but neither ourselves nor our timers ("aside"), nor commands from outside (parent 0). The polite signal spares what reads
# a pipe and does not handle it (the fourth digit of SigCgt): it ends with whoever writes to it. When the shell of a step
# has died of the signal, the programs that it started have the rest of the grace. They are taken in the order of their
# numbers: a shell must not see its child end and go on before it is asked itself.
# "look" reads the counters of the container's own group; the root of all groups (which has "release_agent" or lacks
# "cgroup.events") is not ours, and then the shell's own "times" stand in. What starts a container uses its group before us:
# only what is used from here on counts. A device made of others (dm, md, loop) would count their bytes again.
WRAPPER = r"""
id=$1; steps=$2; note=$3; limit=$4; files=$5; grace=$6; count=$7; shift 7
exec 2>/dev/null; umask 077
groups=/sys/fs/cgroup
look() {
  cpu=; peak=; io=
  if [ -e "$groups/cgroup.events" ]; then
    read -r key cpu < "$groups/cpu.stat"; [ -z "$cpu" ] || cpu=${cpu}000
    read -r peak < "$groups/memory.peak"; io=$groups/io.stat
  elif [ ! -e "$groups/cpuacct/release_agent" ]; then
    read -r cpu < "$groups/cpuacct/cpuacct.usage"
    read -r peak < "$groups/memory/memory.max_usage_in_bytes"; io=$groups/blkio/blkio.throttle.io_service_bytes
  fi
}
add() {
  case $1 in
    rbytes=*|Read=*) got=`expr "$got" + "${1#*=}"` ;;
    wbytes=*|Write=*) put=`expr "$put" + "${1#*=}"` ;;
  esac
}
told() {
  got=0; put=0; look
  [ -z "$cpu" ] || while read -r device first second rest; do
    for kind in dm md loop; do [ ! -d "/sys/dev/block/$device/$kind" ] || continue 2; done
    case $first in *=*) add "$first"; add "$second" ;; *) add "$first=$second" ;; esac
  done < "$io"
  { printf '\037'; if [ -n "$cpu" ]; then printf %s "$before $cpu ${peak:-0} $got $put"; else times; fi; } >> "$note"
}
look; before=$cpu; trap told EXIT
stopped=; n=0; shell=/bin/sh; aside=; d=[0-9]
IFS= read -r line < /proc/self/stat
self=${line%% *}; line=${line##*) }; line=${line#* }; line=${line#* }; group=${line%% *}
rest() {
  what=$1; found=1
  for at in /proc/$d /proc/$d$d /proc/$d$d$d /proc/$d$d$d$d /proc/$d$d$d$d$d /proc/$d$d$d$d$d$d /proc/$d$d$d$d$d$d$d; do
    pid=${at#/proc/}
    IFS= read -r line < "$at/stat" || continue
    set -- ${line##*) }
    case $1 in Z|X) continue ;; esac
    case " $self $aside " in *" $pid "*) continue ;; esac
    case " 0 $aside " in *" $2 "*) continue ;; esac
    [ "$self" -eq 1 ] || [ "$3" -eq "$group" ] || continue
    found=0
    if [ "$what" = TERM ] && [ -p "$at/fd/0" ]; then
      caught=
      while read -r key value; do [ "$key" != SigCgt: ] || caught=$value; done < "$at/status"
      case $caught in *[4567cdef]???) ;; *) continue ;; esac
    fi
    kill -"$what" "$pid"
  done
  return "$found"
}
ask() {
  trap '' TERM; stopped=1; rest TERM
  (
    IFS= read -r line < /proc/self/stat
    sleep "$grace"; aside="$aside ${line%% *}"; rest KILL
  ) > /dev/null &
  aside="$aside $!"
}
trap ask TERM
[ ! -x /bin/bash ] || shell=/bin/bash
give_up() { printf '%s\n' "$1"; printf '\036%s' "$1" > "$note"; exit 125; }
if [ "$limit" -gt 0 ]; then
  (
    trap '' TERM
    sleep "$limit" || exit
    printf '\036timed-out' >> "$note"
    kill -TERM "$self"
  ) > /dev/null &
  aside=$!
fi
[ "$count" -eq 0 ] || printf '\036%s 0\036\n' "$id"
while [ "$n" -lt "$count" ]; do
  n=`expr $n + 1`
  command -v tar > /dev/null || give_up "The image has no tar, with which the files of the task are unpacked."
  mkdir -p "./$1" && cat "$files/$n"/* | tar -xzo -f - -C "./$1" 2>&1 ||
    give_up "The files of the task could not be unpacked in ./$1: the image needs tar and gzip, and the disk room."
  shift
done
[ -z "$stopped" ] || exit 143
n=0
for name in "$@"; do
  n=`expr $n + 1`
  printf '\036%s %s\036\n' "$id" "$n"
  printf %s "$name" > "$note"
  first=; IFS= read -r first < "$steps/$n"
  case $first in
    '#!'*) "$steps/$n" 2>&1 & ;;
    *) "$shell" "$steps/$n" 2>&1 & ;;
  esac
  child=$!
  wait "$child"; code=$?
  while kill -0 "$child"; do wait "$child"; code=$?; done
  [ -z "$stopped" ] || { wait "$child"; last=$?; [ "$last" -eq 127 ] || code=$last; }
  [ -z "$stopped" ] || while rest 0; do sleep 0.1 || sleep 1; done
  [ "$code" -eq 0 ] || exit "$code"
  [ -z "$stopped" ] || [ "$n" -eq "$#" ] || exit 143
done
""".strip()

KEEPER = "trap '' TERM; while sleep 3600; do :; done"
"""Beside the task until somebody ends the pod. It sits out the polite signal: that is meant for the task, whose files are
fetched in what is left of the grace."""
TIMED_OUT = "timed-out"
"""The reason that the wrapper leaves when the time is up."""

USED = "\x1f"
"""The unit separator: what stands after it in a note is what was used."""

_COUNTED = re.compile(r"(\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,18})")
_TIME = re.compile(r"(\d{1,9})m(\d{1,2}\.\d{1,9})s")
_TIMES = re.compile(rf"(?:{_TIME.pattern}\s+){{4}}")
_EXPANDABLE = re.compile(r"\$(?=[$(])")


class Folders(NamedTuple):
    """Where the wrapper finds things."""

    steps: str
    """Scripts, by number."""
    note: str
    """The file to which the name of each step goes, and why it ended where that is nothing of the steps."""
    files: str
    """Archives, a folder for each by number, with its pieces in order."""


class Used(NamedTuple):
    """What a container has used from its first step to its end."""

    cpu_us: int
    memory_peak_mib: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class Note(NamedTuple):
    """What the wrapper has left."""

    step: str
    why: str
    """Why it ended, where no step is to blame."""
    used: Used | None = None
    """What it used; None: it was killed before it could tell."""


def command(
    allocation_id: str,
    folders: Folders,
    names: Iterable[str],
    *,
    unpack: Sequence[str] = (),
    timeout_s: int = 0,
    grace_s: int = 10,
) -> list[str]:
    """Return the container's command; archives are unpacked at the paths of *unpack* before the first step."""
    return [
        "/bin/sh",
        "-c",
        WRAPPER,
        "yunhe",
        unexpanded(allocation_id),
        folders.steps,
        folders.note,
        str(timeout_s),
        folders.files,
        str(grace_s),
        str(len(unpack)),
        *map(unexpanded, unpack),
        *map(unexpanded, names),
    ]


def read_note(text: str) -> Note:
    """Return what a note says; the task can write to it too, so the last figures, which are the wrapper's, count."""
    words, *told = text.split(USED)
    step, _, why = words.partition(MARK.decode())
    return Note(step, why, _read_used(told[-1]) if told else None)


def _read_used(text: str) -> Used | None:
    """Return the figures of a group, else those of the shell's children; None where they are neither."""
    if found := _COUNTED.fullmatch(text):
        before_ns, cpu_ns, peak_bytes, read_bytes, written_bytes = map(int, found.groups())
        peak_mib = -(-peak_bytes // 2**20)
        return Used(max(0, cpu_ns - before_ns) // 1000, peak_mib, read_bytes, written_bytes)
    if _TIMES.fullmatch(text):
        # The first line is the shell itself.
        times = _TIME.findall(text)[2:]
        return Used(sum(round((int(minutes) * 60 + float(seconds)) * 1e6) for minutes, seconds in times))
    return None


def unexpanded(text: str) -> str:
    """Return *text* so that the kubelet's expansion of it gives *text* again."""
    return _EXPANDABLE.sub("$$", text)


def mark_of(allocation_id: str, number: int) -> bytes:
    """Return the line that stands in the log before a step's output."""
    return MARK + f"{allocation_id} {number}".encode() + MARK + b"\n"
