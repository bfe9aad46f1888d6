"""What runs in the container: a fixed text of POSIX sh that takes everything else as arguments."""

import re
from collections.abc import Iterable

MARK = b"\x1e"
"""The record separator: begins and ends a line that tells where a step begins."""

# Words of caution for whoever changes it: the kubelet expands "dollar parenthesis" and "dollar dollar" in a command,
# so neither may stand here. Process 1 of a container has no default for signals: TERM must be handed on. Shells tell of
# children that a signal ended: that is no output of the task, so only the steps write to the log. A step without a
# first line that says otherwise is a script of bash, else of sh, and its files are its own, as on every engine. What handles TERM says how
# it ended; but a step that then ends well has not done what the steps after it would have.
WRAPPER = r"""
id=$1; steps=$2; note=$3; shift 3
exec 2>/dev/null; umask 077
trap 'trap "" TERM; kill -TERM 0; stopped=1' TERM
stopped=; n=0; shell=/bin/sh
[ ! -x /bin/bash ] || shell=/bin/bash
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
  [ "$code" -eq 0 ] || exit "$code"
  [ -z "$stopped" ] || [ "$n" -eq "$#" ] || exit 143
done
""".strip()

_EXPANDABLE = re.compile(r"\$(?=[$(])")


def command(allocation_id: str, folder: str, note: str, names: Iterable[str]) -> list[str]:
    """Return the container's command: scripts lie in *folder* by number, the step's name goes to *note*."""
    return [
        "/bin/sh",
        "-c",
        WRAPPER,
        "yunhe",
        unexpanded(allocation_id),
        folder,
        note,
        *map(unexpanded, names),
    ]


def unexpanded(text: str) -> str:
    """Return *text* so that the kubelet's expansion of it gives *text* again."""
    return _EXPANDABLE.sub("$$", text)


def mark_of(allocation_id: str, number: int) -> bytes:
    """Return the line that stands in the log before a step's output."""
    return MARK + f"{allocation_id} {number}".encode() + MARK + b"\n"
