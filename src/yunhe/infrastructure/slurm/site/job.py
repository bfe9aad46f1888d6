"""One job on its compute node. The process Slurm starts oversees; its child is the agent's own wrapper.

The overseer samples what the task uses, passes on what the platform wants (``stop.json``) and what Slurm does to the
job (SIGTERM before it is killed, SIGTSTP before it is suspended), and writes the final record. Of two jobs for one
allocation, which a helper that died over sbatch may leave, only the first to create the start record runs anything.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from typing import Any

from yunhe.agent.limits.ungrouped import Ungrouped
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.environment import DEFAULT_GRACE_S, environment_of
from yunhe.agent.runs.meters import Meter, UsageSample, read_io, read_use
from yunhe.agent.runs.processes import ancestors_first, signal_all
from yunhe.agent.runtimes.wrapper import BY_ITSELF, Wrapper, clock_ms
from yunhe.infrastructure.slurm.site.sealing import KEY, join_secrets

SAMPLE_EVERY_S = 1.0
BEGIN_EVERY_S = 0.05
"""How often to look whether the wrapper has begun: until then nobody knows which node it is on."""
TELL_EVERY_TICKS = 5
"""Counters of a running job are told this often: each time is a write to the shared file system."""
_NEAR_MS = 1500
_DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
_HEARD = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGTSTP, signal.SIGCONT)


class JobGroup(Ungrouped):
    """The processes of a job; its limits are Slurm's to keep."""

    def join(self) -> None:
        """Do nothing: whatever a job starts is in the job."""


class JobWrapper(Wrapper):
    """Runs the steps of a job."""

    def __init__(self, order: dict[str, Any]) -> None:
        super().__init__(order)
        self._group = JobGroup(self._run.id, os.getpid())
        self._by_slurm = False

    def _heed_term(self) -> None:
        """Obey the platform; where it has no wish, it is Slurm that ends the job, and says why."""
        if self._run.record("stop") is None:
            self._by_slurm = True
            self._begin_end(BY_ITSELF, self._grace_s)
        self._obey_stop()

    def _ask(self) -> None:
        """Ask, unless Slurm ends the job: then the overseer asks, and Slurm itself."""
        if not self._by_slurm:
            super()._ask()


def run_job(path: str) -> int:
    """Run the job whose directory is *path*; return Slurm's exit code for it."""
    run = Run(os.path.dirname(path), os.path.basename(path))
    claim = run.record("claim")
    if claim is None:
        sys.stderr.write(f"there is no claim in {path}: is the root on a file system that every node sees?\n")
        return 1
    if run.record("start") is not None:
        sys.stderr.write("another job runs or has run this allocation, or it was stopped\n")
        return 0
    secrets = join_secrets(run, os.environ.pop(KEY, ""))
    return Overseer(run, claim).run(secrets)


def task_environment(run: Run, claim: dict[str, Any], secrets: dict[str, str]) -> dict[str, str]:
    """Return what a task sees: the platform's variables, and Slurm's own."""
    node = os.environ.get("SLURMD_NODENAME", claim["node_id"])
    passed = {
        name: value for name, value in os.environ.items() if name.startswith("SLURM") or name in _DEVICES
    }
    return {**passed, **environment_of(run, {**claim, "node_id": node}, secrets)}


class Overseer:
    """Watches over the wrapper."""

    def __init__(self, run: Run, claim: dict[str, Any]) -> None:
        self._run = run
        self._claim = claim
        self._alarm_end, alarm = os.pipe()
        for handle in (self._alarm_end, alarm):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        for number in _HEARD:
            signal.signal(number, lambda _number, _frame: None)
        self._pid = 0
        self._group = JobGroup(run.id, 0)
        self._meter: Meter | None = None
        self._interrupted = False
        self._obeyed = False
        self._ticks = 0

    def run(self, secrets: dict[str, str]) -> int:
        """Run the task to its end and record it; return its exit code."""
        order = self._order(secrets)
        self._pid = os.fork()
        if self._pid == 0:
            _wrap(order)
        self._group = JobGroup(self._run.id, self._pid)
        tick_at = time.monotonic() + BEGIN_EVERY_S
        while not self._wrapper_ended():
            self._take_signals(self._hear(tick_at - time.monotonic()))
            if time.monotonic() >= tick_at:
                self._tick()
                tick_at = time.monotonic() + (SAMPLE_EVERY_S if self._ticks else BEGIN_EVERY_S)
        return self._finish()

    def _order(self, secrets: dict[str, str]) -> dict[str, Any]:
        claim = self._claim
        resources = claim["resources"]
        return {
            "root": os.path.dirname(os.path.dirname(self._run.path)),
            "runs": os.path.dirname(self._run.path),
            "allocation_id": self._run.id,
            "uid": os.geteuid(),
            "keeper": {"kind": "slurm", "paths": {}},
            "runtime": {"name": "process"},
            "cpu_millis": resources.get("cpu_millis", 0),
            "memory_mib": resources.get("memory_mib", 0),
            "steps": claim["steps"],
            "environment": task_environment(self._run, claim, secrets),
            "timeout_s": claim.get("timeout_s"),
            "grace_s": claim.get("grace_s", DEFAULT_GRACE_S),
            "log_limit_bytes": claim["log_limit_bytes"],
            "separate_stderr": claim.get("separate_stderr", False),
            "disk_limit_bytes": claim.get("disk_limit_bytes"),
        }

    def _wrapper_ended(self) -> bool:
        return os.waitpid(self._pid, os.WNOHANG)[0] == self._pid

    def _hear(self, within_s: float) -> bytes:
        """Return the numbers of the signals that came, waiting for one."""
        poll = select.poll()
        poll.register(self._alarm_end, select.POLLIN)
        return os.read(self._alarm_end, 512) if poll.poll(max(0.0, within_s) * 1000) else b""

    def _take_signals(self, numbers: bytes) -> None:
        if not numbers:
            return
        if self._meter is None:
            self._begin()
        if signal.SIGTSTP in numbers:
            # Slurm itself waits two seconds before it stops what does not stop by itself.
            signal_all(self._group.processes(), signal.SIGSTOP)
        if signal.SIGCONT in numbers:
            signal_all(self._group.processes(), signal.SIGCONT)
        self._obey_stop()
        if signal.SIGTERM in numbers and not self._obeyed:
            self._interrupted = True
            os.kill(self._pid, signal.SIGTERM)
            signal_all(ancestors_first(set(self._group.processes())), signal.SIGTERM)

    def _obey_stop(self) -> None:
        """Have the wrapper read the platform's wish to end it, once there is one."""
        if os.path.exists(self._run.at("stop.json")):
            self._obeyed = True
            os.kill(self._pid, signal.SIGTERM)

    def _begin(self) -> None:
        """Say which job began and where, and take the counters' first reading, once the wrapper has begun."""
        start = self._run.record("start")
        if start is None or start.get("pid") != self._pid:
            return
        job, node = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURMD_NODENAME", "")
        self._run.write_record("place", {"job": job, "node": node})
        self._meter = Meter(self._run.at("samples"))
        self._meter.add(UsageSample(start["started_clock_ms"], int(start["started_at"] * 1000), 0, 0, 0, 0))

    def _tick(self) -> None:
        self._obey_stop()
        if self._meter is None:
            self._begin()
            return
        try:
            self._sample(self._meter)
        except OSError:
            return  # a process went away while it was read: the next second has the rest
        self._keep_minutes(self._meter, everything=False)
        if self._ticks % TELL_EVERY_TICKS == 0:
            self._tell(self._meter)
        self._ticks += 1

    def _sample(self, meter: Meter) -> None:
        reaped = self._run.at("reaped")
        use = read_use(self._group, reaped)
        last = meter.last()
        io = read_io(self._group, reaped) if last is None or self._ticks % TELL_EVERY_TICKS == 0 else last[4:]
        meter.add(UsageSample(clock_ms(), int(time.time() * 1000), *use, *io))

    def _tell(self, meter: Meter) -> None:
        """Let observers see the counters; it is news, not a record, so no sync."""
        fresh = self._run.at("meters.new")
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump(meter.totals(), file)
        os.replace(fresh, self._run.at("meters.json"))

    def _keep_minutes(self, meter: Meter, *, everything: bool) -> None:
        minutes = meter.fold(everything=everything)
        if minutes:
            with open(self._run.at("minutes"), "a", encoding="utf-8") as file:
                file.write("".join(json.dumps(minute) + "\n" for minute in minutes))
            meter.mark(max(minute["until_ms"] for minute in minutes))

    def _finish(self) -> int:
        """Write the last minute and the final record, if the wrapper has left its own."""
        # The signal that ended the steps may have come to us as well, after they were gone.
        self._interrupted |= signal.SIGTERM in self._hear(0.0) and not self._obeyed
        if self._meter is None:
            self._begin()
        ended = self._run.record("exit")
        if self._meter is None or ended is None:
            return 0
        last = self._meter.last()
        near = last is not None and ended["ended_clock_ms"] - last.clock_ms <= _NEAR_MS
        final = UsageSample(
            ended["ended_clock_ms"],
            int(ended["ended_at"] * 1000),
            ended["cpu_us"],
            last.memory_kib if last is not None and near else 0,
            ended["read_bytes"],
            ended["written_bytes"],
        )
        self._meter.finish(final, ended["memory_peak_kib"])
        self._keep_minutes(self._meter, everything=True)
        told = ("exit_code", "ending", "step", "detail", "ended_at", "log_bytes")
        record = {name: ended[name] for name in told}
        record.update(meters=self._meter.totals(), interrupted=self._interrupted)
        self._run.create_record("end", record)
        code = ended["exit_code"]
        return code if isinstance(code, int) else 1


def _wrap(order: dict[str, Any]) -> None:
    """Be the wrapper, and end; nothing returns into the overseer's code."""
    code = 1
    try:
        JobWrapper(order).run()
        code = 0
    except BaseException as fault:  # noqa: BLE001 - the last frame of this process
        sys.stderr.write(f"{type(fault).__name__}: {fault}\n")
        sys.stderr.flush()
    os._exit(code)
