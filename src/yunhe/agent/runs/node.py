"""The node: its allocations and the commands on them. Commands never wait; what they began is seen by looking."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import time
from typing import Any, Callable, Generator, NamedTuple

from yunhe.agent.daemon.machine import DeclaredMachine, Machine
from yunhe.agent.daemon.spawner import Spawner
from yunhe.agent.failpoints import reach
from yunhe.agent.files import scratch
from yunhe.agent.limits.limits import LimitGroup, find_backend
from yunhe.agent.protocol.refusals import BUSY, CONFLICT, NOT_FOUND, UNSUPPORTED, Refusal, invalid, refusal_of
from yunhe.agent.pythons import build
from yunhe.agent.pythons.cache import PythonCache
from yunhe.agent.runs.changes import ChangeLog
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.environment import DEFAULT_GRACE_S, environment_of
from yunhe.agent.runs.fitness import Fitness
from yunhe.agent.runs.meters import SAMPLES_BYTES
from yunhe.agent.runs.processes import Identity, is_alive, most_processes
from yunhe.agent.runs.register import EXITED, LIVE, PAUSED, PREPARING, RUNNING, STARTING, Allocation, Register
from yunhe.agent.runs.spool import Spool
from yunhe.agent.runs.users import Users
from yunhe.agent.runtimes.interface import HostOptions
from yunhe.agent.runtimes.programs import COULD_NOT_START
from yunhe.agent.runtimes.table import Runtimes
from yunhe.agent.runtimes.wrapper import clock_ms

POWERS = (
    *("resize", "pin", "pause", "files", "exec", "forward"),
    *("images", "gang", "services", "checkpoint", "volumes"),
)
NEVER = {
    "gang": "One host is one node: there is nothing to begin together.",
    "services": "This agent does not restart or balance what it runs.",
    "checkpoint": "This agent cannot freeze a process to a file.",
    "volumes": "This host keeps no storage beyond an allocation's directory.",
}
"""What no agent of this version can do, and why."""
DEFAULT_LOG_BYTES = 64 * 1024 * 1024
TRANSFER_CPU_MILLIS = 500
TRANSFER_MEMORY_MIB = 64
"""What a process that handles an archive has at least, while no task runs beside it."""


class AgentSettings(NamedTuple):
    """What a daemon is started with."""

    root: str
    declared: DeclaredMachine
    first_uid: int
    uid_count: int
    options: HostOptions


class AgentNode:
    """Everything the daemon knows, and every command it takes."""

    def __init__(self, settings: AgentSettings, spawner: Spawner) -> None:
        self.root = settings.root
        self.runs = os.path.join(self.root, "runs")
        self.trash = os.path.join(self.root, "trash")
        self.incoming = os.path.join(self.root, "incoming")
        for path, mode in (
            (self.root, 0o711),
            (self.runs, 0o711),
            (self.trash, 0o700),
            (self.incoming, 0o700),
        ):
            os.makedirs(path, exist_ok=True)
            os.chmod(path, mode)
        self.spool = Spool(os.path.join(self.root, "usage"))
        self.users = Users(os.path.join(self.root, "users.json"), settings.first_uid, settings.uid_count)
        self.register = Register(os.path.join(self.root, "journal"), self.runs)
        kept = (self.register, self.spool, self.users)
        self.notices = [one.notice for one in kept if one.notice]
        self.keeper = find_backend(self.root)
        self.runtimes = Runtimes(self.root, settings.options)
        self.fitness = Fitness(self.root, self.trash)
        self.machine = Machine(self.root, settings.declared)
        self.spawner = spawner
        self._python_limit_bytes = settings.options.pythons_mib << 20
        with self.told_of("The Python environments"):
            PythonCache(self.root, self._python_limit_bytes).sweep()
        self.has_scratch = not scratch.unusable()
        """Whether each allocation gets a file system of its own."""
        self.busy: set[str] = set()
        """Allocations into which an archive is being unpacked."""
        self._transfers: dict[str, int] = {}
        """How many processes that handle archives are in the group of each allocation."""
        # Versions of an earlier life must not be met again: an observer would wait for what has already happened.
        self.changes = ChangeLog(time.time_ns() // 1_000_000)
        with self.told_of("The journal's reserve"):
            self._reserve()
        self.on_change: Callable[[], None] = lambda: None
        self.on_trash: Callable[[str], None] = lambda _path: None
        self.on_stray: Callable[[str], None] = lambda _name: None
        """Told of an allocation of which a runtime may keep what nobody else will remove."""

    def keep_spare(self) -> None:
        """Have a file system made ahead for the next task that names no disk limit, unless there is one."""
        limit_bytes = self.machine.disk_limit_bytes(None)
        if not self.has_scratch or scratch.has_spare(self.root, limit_bytes):
            return
        with contextlib.suppress(OSError):  # then the task makes its own
            self.spawner.spawn("spare", {"root": self.root, "limit_bytes": limit_bytes})

    def group(self, allocation: Allocation) -> LimitGroup:
        """Return the processes of *allocation*."""
        return self.keeper.group(allocation.id, ancestor=int(allocation.start.get("pid", 0)))

    def join_transfer(self, allocation: Allocation, resources: dict[str, Any]) -> dict[str, Any]:
        """Return what a process that handles an archive must join; ``leave_transfer`` follows.

        It is the allocation's group; beside a paused one, which would not let it run, there is another.
        """
        paused = allocation.phase == PAUSED
        name = f"{allocation.id}.paused" if paused else allocation.id
        if paused or allocation.phase != RUNNING:
            cpu_millis, memory_mib = resources.get("cpu_millis", 0), resources.get("memory_mib", 0)
            self.keeper.group(name).create(
                max(cpu_millis, TRANSFER_CPU_MILLIS), max(memory_mib, TRANSFER_MEMORY_MIB)
            )
        self._transfers[name] = self._transfers.get(name, 0) + 1
        return {"name": name, **self.keeper.as_body()}

    def leave_transfer(self, name: str) -> None:
        """Count that a process that handled an archive is gone, or is to go."""
        self._transfers[name] -= 1
        if self._transfers[name]:
            return
        del self._transfers[name]
        allocation = self.register.allocations.get(name)
        if allocation is None or allocation.phase not in LIVE:
            self.keeper.group(name).kill()
            self.leave_group(name)

    def leave_group(self, name: str) -> None:
        """Remove the group of an allocation without processes, unless an archive of it is being handled."""
        if name not in self._transfers:
            self.keeper.group(name).remove()

    def changed(self, name: str) -> None:
        """Let every observer look at an allocation again, or see that it is gone."""
        if name in self.register.allocations:
            self.changes.note(name)
        else:
            self.changes.forget(name)
        self.on_change()

    # Beginning

    def launch(self, body: dict[str, Any]) -> None:
        """Claim the order, durably, and start it; a repeated one only takes the token over."""
        name, token = body["allocation_id"], body["token"]
        allocation = self.register.fence(name, token)
        if name in self.register.marks:
            self.register.mark(name, token)
            return  # stopped before it came, or released: either way its time is over
        if allocation is not None and (allocation.claimed or allocation.stopped):
            self._take_over(allocation, token)
            return
        _check_in_time(body)
        self._admit(body, allocation)
        if body.get("python"):
            body["steps"] = [{"name": build.STEP, "script": build.SCRIPT}, *body["steps"]]
        body["confinement"] = self.runtimes.confinement(body, self.machine.total())
        allocation = self._claim(body, allocation)
        self._start(allocation, body)
        self.changed(name)

    def _admit(self, body: dict[str, Any], allocation: Allocation | None) -> None:
        unfit = self.fitness.refusal()
        if unfit is not None:
            raise unfit
        if body["node_id"] != self.machine.node_id:
            raise Refusal(
                NOT_FOUND,
                f"This node is {self.machine.node_id}, not {body['node_id']}.",
                fields=[{"field": "node_id", "problem": "is another node", "value": body["node_id"]}],
            )
        self._check_fits(body["resources"])
        unusable = self.runtimes.of(body).reason or self.runtimes.network.refusal(body)
        if unusable:
            raise Refusal(UNSUPPORTED, unusable)
        if body.get("python") and body.get("image"):
            raise Refusal(
                UNSUPPORTED, "An image brings its own Python: leave python out, or install in setup."
            )
        if allocation is None:
            return
        if allocation.project != body["project_id"]:
            raise Refusal(CONFLICT, f"{allocation.id} holds files of project {allocation.project}.")
        if allocation.id in self.busy:
            raise Refusal(CONFLICT, f"{allocation.id}: an archive is still being unpacked.")

    def _check_fits(self, resources: dict[str, Any]) -> None:
        total = self.machine.total()
        if resources.get("accelerators"):
            raise invalid("resources.accelerators", "this node has none", resources["accelerators"])
        for name in ("cpu_millis", "memory_mib", "disk_mib"):
            if resources.get(name, 0) > total[name]:
                raise invalid(f"resources.{name}", f"this node has {total[name]} in all", resources[name])

    def _claim(self, body: dict[str, Any], allocation: Allocation | None) -> Allocation:
        """Make the directory and the claim; leave nothing behind if that fails."""
        uid = self.users.propose(body["project_id"])
        run = Run(self.runs, body["allocation_id"])
        claim = {key: value for key, value in body.items() if key not in ("secrets", "steps", "python")}
        claim.update(uid=uid, steps=[step["name"] for step in body["steps"]], claimed_at=time.time())
        reach("before-claim")
        try:
            self._reserve()
            self.users.settle(body["project_id"], uid)
            run.make(uid)
            run.reserve(samples=SAMPLES_BYTES)
            run.write_steps(body["steps"], uid)
            run.claim(claim)
        except OSError as fault:
            self.fitness.note(fault)
            if allocation is None:
                self.on_trash(run.remove(self.trash))
            raise refusal_of(fault, f"claiming {run.id}") from fault
        reach("after-claim")
        allocation = allocation or Allocation(run, body["token"], body["project_id"], uid)
        allocation.token = body["token"]
        allocation.claimed = True
        allocation.resources = body["resources"]
        allocation.link = link_of(body)
        allocation.phase = STARTING
        self.register.allocations[run.id] = allocation
        try:
            self.register.save(allocation, sync=False)  # the claim is the durable record of it
        except OSError:
            self.notice(f"{run.id}: the journal could not be written; its claim stands for it.")
        return allocation

    def _start(self, allocation: Allocation, body: dict[str, Any]) -> None:
        disk_bytes = self.machine.disk_limit_bytes(body.get("disk_limit_bytes"))
        order = {
            "root": self.root,
            "runs": self.runs,
            "allocation_id": allocation.id,
            "uid": allocation.uid,
            "keeper": self.keeper.as_body(),
            "cpu_millis": body["resources"].get("cpu_millis", 0),
            "memory_mib": body["resources"].get("memory_mib", 0),
            "steps": [step["name"] for step in body["steps"]],
            "environment": environment_of(allocation.run, body, body.get("secrets", {})),
            "timeout_s": body.get("timeout_s"),
            "grace_s": body.get("grace_s", DEFAULT_GRACE_S),
            "log_limit_bytes": body.get("log_limit_bytes", DEFAULT_LOG_BYTES),
            "separate_stderr": body.get("separate_stderr", False),
            "disk_limit_bytes": disk_bytes,
            "scratch": self.has_scratch and scratch.is_meant_for(allocation.run, disk_bytes),
            "chosen": sorted({**body.get("envs", {}), **body.get("secrets", {})}),
            "runtime": {"name": self.runtimes.of(body).name, **body["confinement"]},
            "project_id": body["project_id"],
            "python": body.get("python"),
            "python_limit_bytes": self._python_limit_bytes,
        }
        reach("before-spawn")
        try:
            allocation.wrapper_pid = self._spawn_task(order)
        except OSError as fault:
            self._give_up(allocation, fault)
        reach("after-spawn")

    def _spawn_task(self, order: dict[str, Any]) -> int:
        try:
            return self.spawner.spawn("task", order)
        except ConnectionError:
            # The spawner died over it, perhaps after it had forked: of two wrappers only one can record the start.
            return self.spawner.spawn("task", order)

    def _give_up(self, allocation: Allocation, fault: OSError) -> None:
        """Record that nothing was started, unless something was.

        Where the spawner did not answer, what came of it is unknown; any other fault is the host's.
        """
        no_answer = isinstance(fault, (TimeoutError, socket.timeout, ConnectionError))
        detail = f"could not start: {fault}"
        if allocation.run.create_record("start", {"abandoned": True, "detail": detail}) and not no_answer:
            allocation.run.write_record(
                "exit",
                {
                    "exit_code": COULD_NOT_START,
                    "ending": "preempted",  # it was the host that could not
                    "step": "",
                    "detail": detail,
                    "ended_at": time.time(),
                },
            )

    def _reserve(self) -> None:
        """Have room for what must be written after the claims, whatever the disk is like then."""
        self.register.reserve()
        self.spool.reserve(2 * len(self.register.allocations) + 2)

    @contextlib.contextmanager
    def told_of(self, name: str) -> Generator[None, None, None]:
        """Keep a fault with the files of one allocation from what is done with the others; the operator is told."""
        try:
            yield
        except OSError as fault:
            self.notice(f"{name}: {fault}")

    def notice(self, text: str) -> None:
        """Tell the operator, once."""
        if text not in self.notices:
            self.notices = [*self.notices[-19:], text]

    def _take_over(self, allocation: Allocation, token: int) -> None:
        if token > allocation.token:
            allocation.token = token
            self.register.save(allocation)
            self.changed(allocation.id)

    # Ending

    def stop(self, body: dict[str, Any]) -> None:
        """Begin to end an allocation, or leave a mark where there is none."""
        name, token = body["allocation_id"], body["token"]
        allocation = self.register.fence(name, token)
        reach("before-stop-record")
        if allocation is None:
            self.register.mark(name, token)
            if name in self.busy:
                self.keeper.group(name).kill()  # who unpacks into it
        elif allocation.phase == PREPARING:
            allocation.stopped, allocation.phase, allocation.token = True, EXITED, token
            self.register.save(allocation)
            self.keeper.group(name).kill()  # who unpacks into it
        elif allocation.phase in LIVE:
            self._take_over(allocation, token)
            wish = {"grace_s": body.get("grace_s", DEFAULT_GRACE_S), "token": token, "at": time.time()}
            allocation.run.write_record("stop", wish)
            reach("after-stop-record")
            self._signal_wrapper(allocation)
        else:
            self._take_over(allocation, token)
        self.changed(name)

    def _signal_wrapper(self, allocation: Allocation) -> None:
        """Have the wrapper read its stop record; one that has not recorded its start will read it anyway."""
        start = allocation.run.record("start")
        identity = identity_of(start) if start else None
        if identity is not None and is_alive(identity):
            os.kill(identity.pid, signal.SIGTERM)

    def release(self, body: dict[str, Any]) -> None:
        """Forget an ended allocation; only its mark stays."""
        name, token = body["allocation_id"], body["token"]
        allocation = self.register.fence(name, token)
        if allocation is not None and allocation.phase in (*LIVE, PREPARING):
            raise Refusal(
                CONFLICT, f"{name} is {allocation.phase} and cannot be released.", remedy="Stop it first."
            )
        reach("before-release-record")
        self.register.mark(name, token)
        reach("after-release-record")
        if allocation is not None:
            if allocation.meter is not None:
                allocation.meter.close()
                allocation.meter = None
            self.keeper.group(name).kill()  # who packs of it
            self.leave_group(name)
        self.on_trash(Run(self.runs, name).remove(self.trash))
        self.changed(name)

    # Live changes

    def resize(self, body: dict[str, Any]) -> None:
        """Change the limits of a running allocation; all of them, or none."""
        self._need("resize")
        allocation = self._command(body)
        self._check_fits(body["resources"])
        reach("before-resize")
        before, allocation.resources = allocation.resources, {**allocation.resources, **body["resources"]}
        self.register.save(allocation)
        try:
            self.apply_limits(allocation)
        except OSError as fault:
            allocation.resources = before
            self.register.save(allocation)
            self.apply_limits(allocation)
            if fault.errno == errno.EBUSY:
                raise Refusal(
                    CONFLICT,
                    f"{allocation.id} holds more memory than that now.",
                    remedy="Choose a higher limit.",
                ) from fault
            raise
        reach("after-resize")
        self.changed(allocation.id)

    def apply_limits(self, allocation: Allocation) -> None:
        """Set the group's limits to what was commanded; memory first, it is what may be refused."""
        group = self.group(allocation)
        cpu_millis = allocation.resources.get("cpu_millis", 0)
        memory_mib = allocation.resources.get("memory_mib", 0)
        group.set_memory(memory_mib)
        group.set_cpu(cpu_millis)
        group.set_processes(most_processes(cpu_millis, memory_mib))

    def pin(self, body: dict[str, Any]) -> None:
        """Bind a running allocation to cores."""
        self._need("pin")
        allocation = self._command(body)
        strange = sorted(set(body["cores"]) - set(self.machine.cores))
        if strange:
            raise invalid("cores", f"this node has cores {self.machine.cores}", strange)
        allocation.cores = body["cores"]
        self.register.save(allocation)
        self.group(allocation).set_cores(allocation.cores)
        self.changed(allocation.id)

    def pause(self, body: dict[str, Any]) -> None:
        """Freeze a running allocation."""
        self._need("pause")
        allocation = self._command(body)
        allocation.paused, allocation.phase = True, PAUSED
        self.register.save(allocation)
        self.group(allocation).freeze()
        self.changed(allocation.id)

    def resume(self, body: dict[str, Any]) -> None:
        """Let a paused allocation go on."""
        self._need("pause")
        allocation = self._command(body)
        allocation.paused, allocation.phase = False, RUNNING
        self.register.save(allocation)
        self.group(allocation).thaw()
        self.changed(allocation.id)

    def _command(self, body: dict[str, Any]) -> Allocation:
        self.register.fence(body["allocation_id"], body["token"])
        allocation = self.register.live(body["allocation_id"])
        allocation.token = body["token"]
        return allocation

    def _need(self, power: str) -> None:
        missing = self.missing_powers()
        if power in missing:
            raise Refusal(UNSUPPORTED, missing[power])

    def missing_powers(self) -> dict[str, str]:
        """Return what this node cannot do, each with the reason."""
        missing = {**NEVER, **self.runtimes.missing_powers()}
        if not self.keeper.grouped:
            why = "This agent may not write control groups; it keeps limits by rlimits and nice."
            missing.update(resize=why, pin=why, pause=why)
        elif not self.keeper.pins:
            missing["pin"] = "This host has no cpuset controller."
        return missing


def identity_of(start: dict[str, Any]) -> Identity | None:
    """Return who runs the task, if the record says that somebody does."""
    if "pid" not in start:
        return None
    return Identity(start["pid"], start["start_ticks"], start["boot_id"])


def link_of(claim: dict[str, Any]) -> str:
    """Return the link by which the task of a claim is metered; empty where it has none."""
    return claim.get("confinement", {}).get("network", {}).get("link", [""])[0]


def _check_in_time(body: dict[str, Any]) -> None:
    """Refuse an order whose time to be claimed is over: whoever sent it may have given it up."""
    late_ms = clock_ms() - (body.get("expires_ms") or clock_ms())
    if late_ms > 0:
        raise Refusal(
            BUSY, f"The order for {body['allocation_id']} expired {late_ms} ms ago.", remedy="Send it again."
        )
