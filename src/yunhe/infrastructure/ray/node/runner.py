"""One allocation on a Ray node: from its package, through the agent's wrapper, to its last report.

Ray ends a job by signalling every process below its entrypoint. The steps must hear of a stop once and be forced only
after the grace that the platform chose, so they do not live below this process: the wrapper stands apart, and a guard
beside it ends everything should this process be killed, for then nobody would know of it any more.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from typing import Any, Callable

from yunhe.agent.files.archives import unpack_job
from yunhe.agent.limits.ungrouped import Ungrouped
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.environment import DEFAULT_GRACE_S, environment_of
from yunhe.agent.runs.processes import identify, is_alive
from yunhe.agent.runtimes.programs import COULD_NOT_START
from yunhe.agent.runtimes.wrapper import Wrapper
from yunhe.infrastructure.ray.node.report import Reporter, write_report

ORDER = "yunhe-order.json"
UPLOAD = "yunhe-upload.json"
ARCHIVE = "yunhe-upload.tar.gz"
KEY = "YUNHE_SECRETS_KEY"
LOST = 70
"""What this process exits with when its wrapper was killed: nobody can say how the task ended."""
KEPT_S = 7 * 86_400.0
"""How long the directory of an allocation that nobody released is kept after its end."""

_LOOK_S = 0.1
_UNTIL_TOLD_S = 3600.0
_ANSWER_WITHIN_S = 20.0
_PRIVATE = (KEY, "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_JOB_STOP_WAIT_TIME_S", "PWD", "OLDPWD", "_")
_ENDINGS = {"stopped": 143, "timed-out": 124, "out-of-memory": 137, "disk-full": 137}


def main() -> int:
    """Run the allocation whose package Ray has put on our path; return its exit code."""
    signals = Signals()
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    with open(os.path.join(_folder_with(ORDER, folders)[0], ORDER), encoding="utf-8") as file:
        order: dict[str, Any] = json.load(file)
    home = make_home(os.path.dirname(os.readlink("/proc/self/fd/1")))
    sweep(home, order["sweep"])
    return Runner(order, Run(home, order["allocation_id"]), signals).run(_folder_with(UPLOAD, folders))


class Signals:
    """SIGTERM, as something to wait for."""

    def __init__(self) -> None:
        self._end, alarm = os.pipe()
        for handle in (self._end, alarm):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda _number, _frame: None)

    def wait(self, timeout_s: float) -> bool:
        """Wait a little; return whether SIGTERM has come meanwhile."""
        select.select([self._end], [], [], timeout_s)
        try:
            return signal.SIGTERM in os.read(self._end, 512)
        except BlockingIOError:
            return False


class Runner:
    """Runs one allocation to its end."""

    def __init__(self, order: dict[str, Any], run: Run, signals: Signals) -> None:
        self._order = order
        self._run = run
        self._signals = signals
        self._grace_s = float(order.get("grace_s", DEFAULT_GRACE_S))
        self._wrapper = identify(0)
        self._stopped_at: float | None = None
        self._asking: subprocess.Popen[bytes] | None = None
        self._answered = False

    def run(self, uploads: list[str]) -> int:
        """Prepare, run and report; return the exit code of the Ray job."""
        try:
            if not self._prepare(uploads):
                return LOST  # somebody runs it already
        except (OSError, ValueError) as fault:
            return self._give_up(f"could not start: {fault}")
        if self._signals.wait(0):
            self._begin_stop(wrapper_runs=False)
        environment = self._environment()
        self._wrapper = identify(apart(lambda: Wrapper(self._wrapper_order(environment)).run()))
        self._set_guard()
        return self._watch(Reporter(self._run, self._wrapper.pid))

    # Before

    def _prepare(self, uploads: list[str]) -> bool:
        """Make the directory with its files and scripts; return False if it was claimed before."""
        self._run.make(os.getuid())
        claim = {key: self._order[key] for key in ("allocation_id", "project_id", "token")}
        if not self._run.claim(claim):
            return False
        for folder in uploads:
            self._unpack(folder)
        self._run.write_steps(self._order["steps"], os.getuid())
        return True

    def _unpack(self, folder: str) -> None:
        with open(os.path.join(folder, UPLOAD), encoding="utf-8") as file:
            upload = json.load(file)
        answer, tell = os.pipe()
        child = os.fork()
        if child == 0:
            order = {
                "uid": os.getuid(),
                "spawner": os.getppid(),
                "work": self._run.work,
                "path": upload["path"],
                "limit_bytes": self._order["disk_limit_bytes"],
            }
            unpack_job(order, [os.open(os.path.join(folder, ARCHIVE), os.O_RDONLY), tell])
            os._exit(0)
        os.close(tell)
        with os.fdopen(answer, "rb") as file:
            said = json.loads(file.read() or b'{"error": {"problem": "the archive could not be unpacked"}}')
        os.waitpid(child, 0)
        if "error" in said:
            raise ValueError(said["error"]["problem"])

    def _environment(self) -> dict[str, str]:
        """Return what the steps see: Ray's own environment, so that they may use Ray, and the task's."""
        secrets = open_secrets(self._order["secrets"], os.environ.get(KEY, ""))
        theirs = {name: value for name, value in os.environ.items() if name not in _PRIVATE}
        paths = theirs.pop("PYTHONPATH", "").split(os.pathsep)
        kept = [path for path in paths if path and not _is_ours(path)]
        if kept:
            theirs["PYTHONPATH"] = os.pathsep.join(kept)
        ours = environment_of(self._run, {"node_id": "", **self._order}, secrets)
        ours.pop("YUNHE_NODE_ID")  # Ray chose the node, and says which only to those who ask it
        return {**theirs, **ours, "PATH": self._order["envs"].get("PATH", os.environ.get("PATH", ""))}

    def _wrapper_order(self, environment: dict[str, str]) -> dict[str, Any]:
        return {
            "root": os.path.dirname(self._run.path),
            "runs": os.path.dirname(self._run.path),
            "allocation_id": self._run.id,
            "uid": os.getuid(),
            "keeper": {"kind": "rlimits", "paths": {}},
            "cpu_millis": self._order["resources"].get("cpu_millis", 0),
            "memory_mib": self._order["resources"].get("memory_mib", 0),
            "steps": [step["name"] for step in self._order["steps"]],
            "environment": environment,
            "timeout_s": self._order["timeout_s"],
            "grace_s": self._grace_s,
            "log_limit_bytes": self._order["log_limit_bytes"],
            # Ray's own dashboard hands the segments out, as they are.
            "compress_log": False,
            "disk_limit_bytes": self._order["disk_limit_bytes"],
            "runtime": {"name": "process"},
        }

    def _give_up(self, detail: str) -> int:
        ended: dict[str, Any] = {"exit_code": COULD_NOT_START, "ending": "done", "step": "", "detail": detail}
        ended["ended_at"] = time.time()
        news = {
            "started_at": None,
            "step": "",
            "log_bytes": 0,
            "log_starts": [],
            "meters": {},
            "last_minute": 0,
        }
        write_report(self._run, {**news, "ended": ended})
        print(detail, flush=True)  # noqa: T201 - for those who read the job's log in Ray
        return COULD_NOT_START

    def _set_guard(self) -> None:
        """Have somebody end the allocation if this process is killed."""
        alive, self._alive = os.pipe()

        def guard() -> None:
            os.close(self._alive)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.read(alive, 1)
            if self._run.record("exit") is None:
                if is_alive(self._wrapper):
                    os.kill(self._wrapper.pid, signal.SIGKILL)
                Ungrouped(self._run.id, 0).kill()

        apart(guard)
        os.close(alive)

    # While it runs

    def _watch(self, reporter: Reporter) -> int:
        while True:
            lives = is_alive(self._wrapper)
            ended = self._run.record("exit")
            if ended is not None:
                reporter.finish(ended)
                self._end_asking()
                return _ENDINGS.get(ended["ending"]) or ended["exit_code"] or 0
            if not lives:
                reporter.end_all()
                self._end_asking()
                return LOST
            reporter.tick()
            if self._signals.wait(_LOOK_S) and self._stopped_at is None:
                self._begin_stop(wrapper_runs=True)
            if self._stopped_at is not None:
                self._hear_grace(self._stopped_at)

    def _begin_stop(self, *, wrapper_runs: bool) -> None:
        """Pass the polite signal on at once; how long it has is told a moment later."""
        self._stopped_at = time.monotonic()
        self._run.write_record("stop", {"grace_s": _UNTIL_TOLD_S})
        if wrapper_runs:
            os.kill(self._wrapper.pid, signal.SIGTERM)
        module = "yunhe.infrastructure.ray.node.grace"
        command = [sys.executable, "-m", module, self._run.id, os.environ.get("RAY_ADDRESS", "")]
        self._asking = subprocess.Popen(command, stdout=subprocess.PIPE)
        if self._asking.stdout is not None:
            os.set_blocking(self._asking.stdout.fileno(), False)

    def _hear_grace(self, stopped_at: float) -> None:
        if self._asking is None or self._asking.stdout is None:
            return
        said = self._asking.stdout.read() or b""
        if said:
            self._shorten(float(said.split()[-1]), stopped_at)
            self._answered = True
        elif self._asking.poll() is not None or time.monotonic() > stopped_at + _ANSWER_WITHIN_S:
            if not self._answered:
                # A stop that left no mark, such as one from Ray's own dashboard.
                self._shorten(self._grace_s, stopped_at)
            if self._asking.poll() is not None:
                self._asking = None

    def _shorten(self, grace_s: float, stopped_at: float) -> None:
        left_s = max(0.0, stopped_at + grace_s - time.monotonic())
        self._run.write_record("stop", {"grace_s": left_s})
        if is_alive(self._wrapper):
            os.kill(self._wrapper.pid, signal.SIGTERM)

    def _end_asking(self) -> None:
        if self._asking is not None:
            self._asking.kill()
            self._asking.wait()


def apart(work: Callable[[], None]) -> int:
    """Have *work* done by a process that is nobody's child; return its number."""
    answer, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.set_wakeup_fd(-1)
        pid = os.fork()
        if pid != 0:
            os.write(tell, str(pid).encode())
            os._exit(0)
        os.close(answer)
        os.close(tell)
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - nothing may return into the runner's code
            traceback.print_exc()
        os._exit(code)
    os.close(tell)
    os.waitpid(child, 0)
    pid = int(os.read(answer, 32))
    os.close(answer)
    return pid


def make_home(logs: str) -> str:
    """Return where allocations live on this node: beside Ray's logs, and seen among them through a link.

    Ray serves the files below its log directory, links included. The directories themselves are not there, so that
    whoever collects the cluster's logs does not collect tasks' files with them.
    """
    home = os.path.join(os.path.dirname(logs), "yunhe")
    os.makedirs(home, mode=0o711, exist_ok=True)
    try:
        os.symlink(os.path.join("..", "yunhe"), os.path.join(logs, "yunhe"))
    except FileExistsError:
        return home
    return home


def sweep(home: str, released: list[str]) -> None:
    """Remove the directories of *released* allocations, and of those that ended long ago."""
    for name in os.listdir(home):
        report = os.path.join(home, name, "report.json")
        if name in released or _ended_before(report, time.time() - KEPT_S):
            shutil.rmtree(os.path.join(home, name), ignore_errors=True)


def _ended_before(report: str, at: float) -> bool:
    try:
        with open(report, encoding="utf-8") as file:
            ended = json.load(file)["ended"]
    except (OSError, ValueError, KeyError):
        return False
    return ended is not None and ended["ended_at"] < at


def open_secrets(sealed: str, key: str) -> dict[str, str]:
    """Return the secrets that were sealed with *key*; the platform's side is ``package.seal_secrets``."""
    data = bytes.fromhex(sealed)
    stream = hashlib.shake_256(bytes.fromhex(key)).digest(len(data))
    return json.loads(bytes(a ^ b for a, b in zip(data, stream))) if data else {}  # noqa: B905 - Python 3.8 has no strict


def _folder_with(name: str, folders: list[str]) -> list[str]:
    return [folder for folder in folders if os.path.exists(os.path.join(folder, name))]


def _is_ours(folder: str) -> bool:
    parts = (ORDER, UPLOAD, os.path.join("yunhe", "infrastructure", "ray", "node", "runner.py"))
    return bool([part for part in parts if os.path.exists(os.path.join(folder, part))])
