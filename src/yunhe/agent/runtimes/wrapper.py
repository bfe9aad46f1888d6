"""One task from its first step to its exit record; it needs no agent to be alive.

A wrapper is forked by the spawner for each task and stays outside the task's control group, so that neither a kill
nor a freeze of the task stops it, and its own work is not billed. It runs the steps in order, writes their output,
keeps the time and disk limits, obeys ``stop.json`` when signalled, and at the end records exit and final counters.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import select
import signal
import socket
import struct
import time
from typing import Any, Callable

from yunhe.agent.durable import reserve
from yunhe.agent.failpoints import reach
from yunhe.agent.files import scratch
from yunhe.agent.files.mounts import flush
from yunhe.agent.files.paths import ShortPath, bytes_below
from yunhe.agent.files.removal import clean_job
from yunhe.agent.limits.limits import LimitsBackend
from yunhe.agent.pythons.task import TaskPython
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.environment import DEFAULT_GRACE_S, is_beside
from yunhe.agent.runs.processes import ancestors_first, catches, identify, read_stat, signal_all
from yunhe.agent.runs.users import end_with, end_with_parent
from yunhe.agent.runtimes.interface import STARTED, CalledOffError
from yunhe.agent.runtimes.log_pump import LogPump
from yunhe.agent.runtimes.pipelines import read_only_others
from yunhe.agent.runtimes.programs import COULD_NOT_START, exit_code, program_of, restore_signals
from yunhe.agent.runtimes.table import sandbox_of

BY_ITSELF = "done"
"""The ending of a task whose steps ended without anybody asking."""

HOST_FAULTS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EMFILE,
    errno.ENFILE,
    errno.EIO,
    errno.EROFS,
)
"""What keeps a step from being executed and is none of the task's making: another host may be able to."""

REAPED = struct.Struct("<QQQ")
"""Of everything the wrapper has reaped: cpu microseconds, bytes read, bytes written."""

_CALL_OFF_S = 5.0
_LEFT_EVERY_S = 0.1
_EOF_WITHIN_S = 1.0
"""Who only reads what others print ends at the end of its input; after so long without any others it is asked too."""
_DISK_CHECK_S = 2.0
_SCRATCH_CHECK_S = 0.5
_FORKS_WITHIN_S = 1.0
_TOO_MANY_NEW = 64
"""A task that starts so many processes when it is asked to end does not mean to."""
_LOW_DISK_BYTES = 256 * 1024 * 1024
_BLOCK_BYTES = 512
_RECORD_AGAIN_S = 1.0


class Wrapper:
    """Runs one task."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._run = Run(order["runs"], order["allocation_id"])
        keeper = LimitsBackend(order["keeper"]["kind"], order["keeper"]["paths"])
        self._group = keeper.group(self._run.id, ancestor=os.getpid())
        self._log, self._task_ends = self._open_log()
        self._alarm_end, alarm = os.pipe()
        for handle in (self._alarm_end, alarm):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: None)
        self._step_pid = 0
        self._status: int | None = None
        self._ending: str | None = None
        self._force_at: float | None = None
        self._look_again_at: float | None = None
        self._wake_at: float | None = None
        self._asked: set[int] = set()
        """Who was there when the task was asked to end."""
        self._spared: set[int] = set()
        """Who of them was not asked: see ``pipelines``."""
        self._grace_s = float(order.get("grace_s", DEFAULT_GRACE_S))
        self._deadline: float | None = None
        self._disk_check_at = time.monotonic() + _DISK_CHECK_S
        self._disk_paths = [self._run.work, self._run.at("tmp")]
        self._reaped = self._open_reaped()
        self._started: dict[str, Any] = {}
        self._unbilled = (0, 0, 0)
        """What helper programs of the runtime used, which is not the task's to pay."""
        self._sandbox = sandbox_of(order, self._run)
        self._python = TaskPython(order, self._run)

    def _open_log(self) -> tuple[LogPump, tuple[int, int]]:
        """Return the log, and what the steps have as their two outputs: one pipe, or a pipe for each."""
        log_end, out = os.pipe()
        sources, errors = {log_end: ""}, out
        if self._order.get("separate_stderr"):
            error_end, errors = os.pipe()
            sources = {log_end: "stdout", error_end: "stderr"}
        compress = bool(self._order.get("compress_log", True))
        pump = LogPump(self._run.log, self._order["log_limit_bytes"], sources, self._group, compress=compress)
        return pump, (out, errors)

    def _open_reaped(self) -> mmap.mmap:
        reserve(self._run.at("reaped"), REAPED.size)
        handle = os.open(self._run.at("reaped"), os.O_RDWR | os.O_CLOEXEC)
        page = mmap.mmap(handle, REAPED.size)
        os.close(handle)
        return page

    def run(self) -> None:
        """Run the task to its end and record it."""
        reach("before-start-record")
        if not self._record_start():
            return  # an agent that came back has given this run up: it must not begin now
        step, code, detail = "", None, ""
        try:
            self._group.create(self._order["cpu_millis"], self._order["memory_mib"])
            self._obey_stop()
            if self._ending is None:
                self._make_scratch()
                self._choose_python()
            if self._ending is None:
                self._sandbox.prepare(self._group, self._run_helper)
                self._unbilled = self._reaped_counters()
                self._disk_paths += self._sandbox.disk_paths
            step, code = self._run_steps()
            self._let_rest_end()
        except CalledOffError:
            code = None
        except OSError as fault:
            code, detail = COULD_NOT_START, f"could not start: {fault.strerror or fault}"
            if fault.errno in HOST_FAULTS:
                self._ending = self._ending or "preempted"
        self._finish(step, code, detail)
        self._sandbox.clean_up()
        for path in self._python.end():
            clean_job({"path": path, **self._order["keeper"]}, [])

    def _make_scratch(self) -> None:
        """Have the task's own file system, where this host gives it one; its making is not billed."""
        if self._order.get("scratch"):
            scratch.ensure(self._run, self._order["uid"], self._order["disk_limit_bytes"])
            self._disk_paths = []
        self._unbilled = self._reaped_counters()

    def _choose_python(self) -> None:
        """Have the Python environment that the task wants, or the place to build it in; wait while another builds it."""
        python, told = self._python, False
        if not python.wanted:
            return
        python.read(self._run_apart)
        while self._ending is None and not python.take():
            if not told:
                self._say(
                    "waiting for another job of this project that prepares the same Python environment …"
                )
                told = True
            self._wake_at = time.monotonic() + _LEFT_EVERY_S
            self._turn()
        self._wake_at = None
        if self._ending is None and not python.ready:
            self._disk_paths = [*self._disk_paths, python.path]

    def _share_python(self) -> None:
        """Let later jobs have the Python environment that was built; it is not the task's disk then."""
        if self._order["disk_limit_bytes"] is not None and self._is_over_disk_limit():
            self._begin_end("disk-full", 0.0)
            return
        why_not = self._python.share(self._run_apart)
        if why_not:
            self._say(why_not)
        else:
            self._disk_paths = [path for path in self._disk_paths if path != self._python.path]

    def _say(self, text: str) -> None:
        """Put a line of ours into the task's log."""
        os.write(self._task_ends[1], f"yunhe: {text}\n".encode())

    def _run_apart(self, work: Callable[[], bytes]) -> bytes:
        """Do *work* in a process of the task's group; return its answer, raise what it raised.

        Raise ``CalledOffError`` if the task was told to end meanwhile.
        """
        answer = os.memfd_create("answer")
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                self._group.join()
                os.write(answer, b"." + work())
            except OSError as fault:
                os.write(answer, f"{fault.errno or 0} {fault.strerror or fault}".encode())
            finally:
                os._exit(0)
        self._step_pid, self._status = pid, None
        while self._status is None:
            self._turn()
        said = os.pread(answer, os.fstat(answer).st_size, 0)
        os.close(answer)
        if said[:1] == b".":
            return said[1:]
        if self._ending is not None:
            raise CalledOffError
        number, _, text = said.decode(errors="replace").partition(" ")
        raise OSError(int(number or 0), text or "a process of the task's group was ended")

    def _record_start(self) -> bool:
        me = identify(os.getpid())
        if self._order["timeout_s"] is not None:
            self._deadline = time.monotonic() + self._order["timeout_s"]
        self._started = {"started_at": time.time(), "started_clock_ms": clock_ms()}
        return self._run.create_record("start", {**me._asdict(), **self._started})

    def _run_helper(self, command: list[str], *, inside: bool = False) -> tuple[int, str]:
        """Run a program of the runtime, outside the task's group or *inside*; return its exit code and what it said last.

        Raise ``CalledOffError`` if the task was told to end meanwhile.
        """
        said = os.memfd_create("said")
        me = os.getpid()
        pid = self._sandbox.fork() if inside else os.fork()
        if pid == 0:
            try:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(said, 1)
                os.dup2(said, 2)
                if inside:
                    end_with_parent()
                    self._group.join()
                    program = os.open(command[0], os.O_RDONLY)  # the task may not see where it lies
                    self._sandbox.enter()
                    os.execve(program, command, dict(os.environ))
                end_with(me)
                os.execv(command[0], command)
            finally:
                os._exit(COULD_NOT_START)
        self._step_pid, self._status = pid, None
        ending = self._ending
        while self._status is None:
            self._turn()
            if self._ending != ending:
                self._call_off(pid)
        self._unbilled = self._reaped_counters()
        self._publish()
        size = os.fstat(said).st_size
        text = os.pread(said, 4096, max(0, size - 4096)).decode(errors="replace")
        os.close(said)
        if self._ending != ending:
            raise CalledOffError
        return exit_code(self._status), text

    def _call_off(self, pid: int) -> None:
        """End a helper program; politely first, since one killed halfway leaves what nobody knows of."""
        signal_all([pid], signal.SIGTERM)
        until = time.monotonic() + _CALL_OFF_S
        while self._status is None:
            time.sleep(0.02)
            self._reap()
            if time.monotonic() > until:
                signal_all([pid], signal.SIGKILL)

    def _run_steps(self) -> tuple[str, int | None]:
        name, code = "", None
        for number, following in enumerate(self._order["steps"]):
            if self._ending is not None:
                break
            builds = number == 0 and self._python.wanted
            if builds and self._python.ready:
                continue
            name = following
            self._execute(number)
            self._announce(name)
            while self._status is None:
                self._turn()
            code = exit_code(self._status)
            if code != 0:
                break
            if builds and self._ending is None:
                self._share_python()
        return name, code

    def _execute(self, number: int) -> None:
        """Start a step; return once its program runs, or raise what kept it from running."""
        reach("before-exec")
        failed, report = os.pipe()
        ending, self._status = self._ending, None
        self._step_pid = pid = self._sandbox.fork()
        if pid == 0:
            try:
                self._become_step(number, report)
            except BaseException as fault:  # noqa: BLE001 - nothing may return into the wrapper's code
                os.write(report, f"{getattr(fault, 'errno', 0) or 0} {fault}".encode()[:400])
            os._exit(COULD_NOT_START)
        os.close(report)
        while self._status is None and not _is_readable(failed):
            self._turn(failed)
        message = os.read(failed, 400).decode(errors="replace")
        os.close(failed)
        if message not in ("", STARTED):
            if self._status is None:
                os.waitpid(pid, 0)
            number_text, _, text = message.partition(" ")
            raise OSError(int(number_text), text)
        if self._ending != ending:
            self._ask()  # it may not have been there to be asked
        reach("after-exec")

    def _become_step(self, number: int, report: int) -> None:
        restore_signals()
        os.setsid()
        self._group.join()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(self._task_ends[0], 1)
        os.dup2(self._task_ends[1], 2)
        self._sandbox.enter()
        os.chdir(self._run.work)
        self._sandbox.confine()
        self._sandbox.execute(*program_of(self._run.step_path(number)), report)

    def _turn(self, also: int | None = None) -> None:
        """Wait for output, a child, a signal, a deadline, or *also* for a pipe; deal with what came."""
        poll = select.poll()
        if also is not None:
            poll.register(also, select.POLLIN)
        if self._log.is_ours:
            for source in self._log.sources:
                poll.register(source, select.POLLIN)
        poll.register(self._alarm_end, select.POLLIN)
        now = time.monotonic()
        ends = (self._deadline, self._force_at, self._look_again_at, self._wake_at)
        waits = [at - now for at in ends if at is not None]
        if self._order["disk_limit_bytes"] is not None:
            waits.append(self._disk_check_at - now)
        poll.poll(max(0.0, min(waits)) * 1000 + 1 if waits else None)
        self._log.pump()
        self._take_signals()
        self._reap()
        self._keep_limits()

    def _take_signals(self) -> None:
        try:
            numbers = os.read(self._alarm_end, 512)
        except BlockingIOError:
            return
        if signal.SIGTERM in numbers:
            self._heed_term()

    def _reap(self) -> bool:
        """Reap what has ended and publish the counters; return whether any child is left."""
        left = True
        while left:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                left = False
                break
            if pid == 0:
                break
            self._log.note_end(pid)
            if pid == self._step_pid:
                self._status = status
        self._publish()
        return left

    def _publish(self) -> None:
        """Let everybody see what the reaped have used, less what was not the task's own."""
        counters = self._reaped_counters()
        billed = [max(0, all_of_it - ours) for all_of_it, ours in zip(counters, self._unbilled)]  # noqa: B905 - Python 3.8
        REAPED.pack_into(self._reaped, 0, *billed)

    @staticmethod
    def _reaped_counters() -> tuple[int, int, int]:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_us = round((used.ru_utime + used.ru_stime) * 1_000_000)
        return cpu_us, used.ru_inblock * _BLOCK_BYTES, used.ru_oublock * _BLOCK_BYTES

    def _keep_limits(self) -> None:
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            self._begin_end("timed-out", self._grace_s)
        if self._look_again_at is not None and now >= self._look_again_at:
            self._look_again_at = None
            if len(set(self._group.processes()) - self._asked) > _TOO_MANY_NEW:
                self._force_at = now
        if self._force_at is not None and now >= self._force_at:
            self._force_at = None
            self._group.kill()
        if self._order["disk_limit_bytes"] is not None and now >= self._disk_check_at:
            over = self._is_over_disk_limit()
            # A large tree takes long to count: spend at most a twentieth of the time on it.
            pause_s = _DISK_CHECK_S if self._disk_paths else _SCRATCH_CHECK_S
            self._disk_check_at = time.monotonic() + max(pause_s, 20 * (time.monotonic() - now))
            if over:
                # Where a file system of its own holds it to its limit, it may still save what it can.
                self._begin_end("disk-full", self._grace_s if scratch.is_mounted(self._run) else 0.0)

    def _is_over_disk_limit(self) -> bool:
        used = sum(map(bytes_below, self._disk_paths))
        if scratch.is_mounted(self._run):
            used += scratch.used_bytes(self._run)
        return used > self._order["disk_limit_bytes"]

    def _heed_term(self) -> None:
        """Do what somebody who signalled us wants; here that is only the agent, with a stop record."""
        self._obey_stop()

    def _obey_stop(self) -> None:
        wish = self._run.record("stop")
        if wish is not None:
            self._begin_end("stopped", float(wish["grace_s"]))

    def _begin_end(self, ending: str, grace_s: float) -> None:
        """Ask every process to end, and set the time by which it must have; a later, shorter grace shortens it."""
        force_at = time.monotonic() + grace_s
        if self._ending is None:
            self._ending = ending
            # A task that fills its processes up forks faster than they could be asked to end.
            self._force_at = time.monotonic() if self._group.is_crowded() else force_at
            self._ask()
            self._group.thaw()
        elif self._force_at is not None:
            self._force_at = min(self._force_at, force_at)

    def _ask(self) -> None:
        """Send the polite signal to everybody who is not about to end by the end of others."""
        self._asked = set(self._group.processes())
        self._spared = set() if self._sandbox.hides else read_only_others(self._asked)
        self._look_again_at = time.monotonic() + _FORKS_WITHIN_S
        # A shell must not see its child end and go on before it is asked itself.
        self._sandbox.ask_to_end(ancestors_first(self._asked - self._spared))

    def _let_rest_end(self) -> None:
        """Give what the steps started, and outlives them, the rest of the grace: the shell dies of a signal first.

        Where the steps ended by themselves, only who handles the polite signal has work to save.
        """
        if self._ending is None:
            if self._sandbox.hides or not any(catches(pid, signal.SIGTERM) for pid in self._left()):
                return
            self._deadline = None
            self._begin_end(BY_ITSELF, self._grace_s)
        alone_since = time.monotonic()
        while self._force_at is not None:
            left = self._left()
            if not left:
                break
            now = time.monotonic()
            if not left <= self._spared:
                alone_since = now
            elif now - alone_since > _EOF_WITHIN_S:
                signal_all(list(left), signal.SIGTERM)
                self._spared = set()
            self._wake_at = now + _LEFT_EVERY_S
            self._turn()
        self._wake_at = None

    def _left(self) -> set[int]:
        """Return the processes of the task that live, without our own and commands beside it."""
        if self._sandbox.hides:
            return self._sandbox.inside()
        ours = {self._log.pid, self._sandbox.first_pid}
        return {
            pid
            for pid in set(self._group.processes()) - ours
            if (stat := read_stat(pid)) and stat.state not in "ZX" and not is_beside(pid)
        }

    def _finish(self, step: str, code: int | None, detail: str) -> None:
        """End what the steps left behind, read the counters for the last time, and record the exit."""
        self._log.take_back()
        self._group.kill()
        carried = self._sandbox.network.carried()
        self._sandbox.kill()
        for end in set(self._task_ends):
            os.close(end)
        until = time.monotonic() + 2.0
        while (self._log.pump() or self._reap()) and time.monotonic() < until:
            time.sleep(0.001)
        self._log.close()
        reaped_cpu_us, read_bytes, written_bytes = REAPED.unpack_from(self._reaped, 0)
        counted_us = self._group.cpu_us()
        ending = self._ending or BY_ITSELF
        by_itself = ending == BY_ITSELF
        if self._group.oom_kills() and code != 0 and by_itself:
            ending, detail = "out-of-memory", "the kernel ended it: more memory was needed than allowed"
        if by_itself and code not in (0, None) and self._order.get("scratch"):
            # It may have ended by itself for want of room before anybody looked.
            ending = "disk-full" if self._is_over_disk_limit() else ending
        if self._order.get("scratch") and self._lost_files():
            ending, detail = "preempted", "the host's disk was full, and some of the task's files are lost"
        ended_ms = clock_ms()
        record: dict[str, Any] = {
            "exit_code": code,
            "ending": ending,
            "step": step,
            "detail": detail,
            # As long after the start as it ran, even if the host's clock was set meanwhile.
            "ended_at": self._started["started_at"] + (ended_ms - self._started["started_clock_ms"]) / 1000,
            "ended_clock_ms": ended_ms,
            "cpu_us": reaped_cpu_us if counted_us is None else counted_us,
            "read_bytes": read_bytes,
            "written_bytes": written_bytes,
            "memory_peak_kib": self._memory_peak_kib(),
            "log_bytes": self._log.offset,
            **carried,
        }
        reach("before-exit-record")
        self._record_exit(record)
        reach("after-exit-record")
        self._nudge()

    def _memory_peak_kib(self) -> int:
        """Return the most the group ever held; where nobody counts that, the most that one of its processes did."""
        peak_kib = self._group.memory_peak_kib()
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss if peak_kib is None else peak_kib

    def _lost_files(self) -> bool:
        """Return whether the host had no room for what the task wrote; looked into where it may be so."""
        disk = os.statvfs(self._run.path)
        if disk.f_bavail * disk.f_frsize > _LOW_DISK_BYTES or not scratch.is_mounted(self._run):
            return False
        try:
            flush(self._run.scratch)
        except OSError:
            return True
        return False

    def _record_exit(self, record: dict[str, Any]) -> None:
        """Record how it ended; where nothing can be written, wait until it can: a lost end would be run again."""
        while True:
            try:
                self._run.write_record("exit", record)
            except OSError as fault:
                if fault.errno not in HOST_FAULTS:
                    raise
                time.sleep(_RECORD_AGAIN_S)
            else:
                return

    def _announce(self, step: str) -> None:
        self._run.announce(step)
        self._nudge()

    def _nudge(self) -> None:
        """Tell the agent, if one lives, to look at this run now rather than at its next tick."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.setblocking(False)
            try:
                with ShortPath(self._order["root"]) as root:
                    line.sendto(self._run.id.encode(), f"{root}/events.sock")
            except OSError:
                return


def _is_readable(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))


def clock_ms() -> int:
    """Return milliseconds that only go forward, the same for every process of this boot."""
    return time.monotonic_ns() // 1_000_000
