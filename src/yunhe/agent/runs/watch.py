"""Looking at what came of the commands: phases, meters, minutes, and what happened while no agent was alive."""

from __future__ import annotations

import os
import time
from typing import Any

from yunhe.agent.failpoints import reach
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.logs import end_of_log
from yunhe.agent.runs.meters import Meter, UsageSample, read_io, read_use
from yunhe.agent.runs.node import AgentNode, identity_of, link_of
from yunhe.agent.runs.processes import boot_id, is_alive
from yunhe.agent.runs.register import EXITED, LIVE, PAUSED, RUNNING, STARTING, UNKNOWN, Allocation
from yunhe.agent.runtimes import network
from yunhe.agent.runtimes.wrapper import clock_ms

IO_EVERY_TICKS = 5
LOW_DISK_BYTES = 256 * 1024 * 1024


class RunWatch:
    """Follows every allocation of a node."""

    def __init__(self, node: AgentNode) -> None:
        self._node = node
        self._ticks = 0

    # After a start

    def recover(self) -> None:
        """Find out what became of everything that was under way when the last agent ended."""
        node = self._node
        for name in sorted(os.listdir(node.runs)):
            if name in node.register.marks:
                Run(node.runs, name).remove(node.trash)
            elif name not in node.register.allocations:
                self._adopt(Run(node.runs, name))
        for name in os.listdir(node.incoming):
            os.unlink(os.path.join(node.incoming, name))
        folded = node.spool.folded()
        for allocation in list(node.register.allocations.values()):
            with node.told_of(allocation.id):
                node.users.restore(allocation.project, allocation.uid)
            if allocation.stopped:
                allocation.phase = EXITED
            elif allocation.claimed or allocation.run.record("claim") is not None:
                with node.told_of(allocation.id):
                    self._resume_watching(allocation, folded.get(allocation.id, 0))
        self._remove_stray_groups()
        for name in os.listdir(node.trash):
            node.on_trash(os.path.join(node.trash, name))

    def _adopt(self, run: Run) -> None:
        """Take back an allocation that the journal has lost, from its own directory."""
        claim = run.record("claim")
        owner = claim or run.record("owner")
        if owner is None:
            run.remove(self._node.trash)  # a crash before anything was promised
            return
        allocation = Allocation(run, owner["token"], owner["project_id"], owner["uid"])
        allocation.claimed = claim is not None
        allocation.resources = owner.get("resources", {})
        self._node.register.allocations[allocation.id] = allocation
        with self._node.told_of(allocation.id):
            self._node.register.save(allocation)

    def _resume_watching(self, allocation: Allocation, folded_ms: int) -> None:
        allocation.claimed = True
        claim = allocation.run.record("claim")
        if claim is None:
            allocation.phase, allocation.detail = UNKNOWN, "its claim cannot be read"
            return
        allocation.phase = STARTING
        allocation.link = link_of(claim)
        self._open_meter(allocation)
        if allocation.meter is not None:
            allocation.meter.mark(folded_ms)
            allocation.totals = allocation.meter.totals()
        # Whoever creates this record first decides: a wrapper that finds it made here will not begin.
        allocation.run.create_record("start", {"abandoned": True})
        self.look(allocation)
        if allocation.phase in LIVE and self._node.keeper.grouped:
            self._reapply(allocation)

    def _reapply(self, allocation: Allocation) -> None:
        """Carry out what was commanded and may not have been done before the last agent ended."""
        group = self._node.group(allocation)
        try:
            self._node.apply_limits(allocation)
            if allocation.cores:
                group.set_cores(allocation.cores)
            if allocation.paused:
                group.freeze()
            else:
                group.thaw()
        except OSError as fault:
            self._node.notice(f"{allocation.id}: its limits could not be set again: {fault}")

    def _remove_stray_groups(self) -> None:
        """Remove the groups of allocations that have ended or are not known; nothing of them may run on."""
        for name in self._node.keeper.leftovers():
            allocation = self._node.register.allocations.get(name)
            if allocation is None or allocation.phase not in LIVE:
                group = self._node.keeper.group(name)
                group.kill()
                group.remove()

    # Every second, and when nudged

    def tick(self) -> None:
        """Look at everything that lives, take a sample of it, and fold the minutes that are over."""
        self._ticks += 1
        self._count_network()
        cpu_us = memory_kib = 0
        for allocation in list(self._node.register.allocations.values()):
            if allocation.phase not in LIVE:
                continue
            with self._node.told_of(allocation.id):
                self._tick_one(allocation)
            if allocation.phase in (RUNNING, PAUSED):
                cpu_us += allocation.totals.get("cpu_us", 0)
                last = allocation.meter.last() if allocation.meter else None
                memory_kib += last.memory_kib if last else 0
        self._node.machine.tick(cpu_us, memory_kib)
        self._node.fitness.probe()
        if self._node.machine.free_disk_bytes() < LOW_DISK_BYTES:
            self._node.notice(f"Less than {LOW_DISK_BYTES >> 20} MiB are free where allocations live.")
        else:
            self._node.keep_spare()

    def _count_network(self) -> None:
        """Read what the links of all tasks have carried, at once."""
        links = {
            one.link: one
            for one in self._node.register.allocations.values()
            if one.link and one.phase in LIVE
        }
        for name, carried in (network.counters(set(links)) if links else {}).items():
            links[name].carried = carried

    def _tick_one(self, allocation: Allocation) -> None:
        identity = identity_of(allocation.start)
        if allocation.phase == STARTING or identity is None or not is_alive(identity):
            self.look(allocation)  # what a living wrapper has to say, it says by a nudge
        if allocation.phase in (RUNNING, PAUSED):
            self._sample(allocation)
            self._fold(allocation, everything=False)

    def look(self, allocation: Allocation) -> None:
        """Read the records of *allocation* and move it to the phase they tell of."""
        before = (allocation.phase, allocation.step)
        run = allocation.run
        if not allocation.start:
            self._look_for_start(allocation)
        identity = identity_of(allocation.start)
        alive = identity is not None and is_alive(identity)
        if identity is not None:
            allocation.step = run.announced() or allocation.step
            if allocation.step and allocation.phase == STARTING:
                allocation.phase = PAUSED if allocation.paused else RUNNING
                self._node.keep_spare()  # it may have taken the one there was
        # Read after asking who lives: a wrapper writes its exit record before it ends.
        ended = run.record("exit")
        if ended is not None:
            self._close(allocation, ended)
        elif allocation.start and not alive:
            self._lose(allocation)
        if (allocation.phase, allocation.step) != before:
            self._node.changed(allocation.id)

    def _look_for_start(self, allocation: Allocation) -> None:
        start = allocation.run.record("start")
        if start is None and allocation.wrapper_pid and not os.path.exists(f"/proc/{allocation.wrapper_pid}"):
            # It ended before it could say that it began: make sure it never does.
            allocation.run.create_record("start", {"abandoned": True})
            start = allocation.run.record("start")
        allocation.start = start or {}
        if "pid" in allocation.start and allocation.meter is None:
            self._open_meter(allocation)
        if "pid" in allocation.start and allocation.meter and allocation.meter.last() is None:
            began = allocation.start
            wall_ms = int(began["started_at"] * 1000)
            allocation.meter.add(UsageSample(began["started_clock_ms"], wall_ms, 0, 0, 0, 0))

    def _open_meter(self, allocation: Allocation) -> None:
        """Open the samples of *allocation*; without room for them its exit record has the final counters."""
        with self._node.told_of(allocation.id):
            allocation.meter = Meter(allocation.run.at("samples"))

    def sample_early(self, allocation: Allocation) -> None:
        """Take a sample of what may be over before the next tick."""
        if allocation.phase == RUNNING:
            self._sample(allocation)

    def _sample(self, allocation: Allocation) -> None:
        if allocation.meter is None:
            return
        group, reaped = self._node.group(allocation), allocation.run.at("reaped")
        last = allocation.meter.last()
        try:
            use, peak_kib = read_use(group, reaped), group.memory_peak_kib()
            # The counters of each process are dear to read and only grow: a look now and then loses nothing.
            io = read_io(group, reaped) if last is None or self._ticks % IO_EVERY_TICKS == 0 else last[4:]
        except OSError:
            return  # the group went away meanwhile: the exit record has the final counters
        allocation.meter.add(UsageSample(clock_ms(), int(time.time() * 1000), *use, *io))
        allocation.meter.raise_peak(peak_kib)
        allocation.totals = allocation.meter.totals()

    def _close(self, allocation: Allocation, ended: dict[str, Any]) -> None:
        """Take the exit record: final counters, last minute, and the group is not needed any more."""
        allocation.phase, allocation.exit, allocation.detail = EXITED, ended, ended["detail"]
        allocation.step = ended["step"] or allocation.step
        meter = allocation.meter
        if meter is not None and "cpu_us" in ended:
            last = meter.last()
            near = last is not None and ended["ended_clock_ms"] - last.clock_ms <= 1500
            final = UsageSample(
                ended["ended_clock_ms"],
                int(ended["ended_at"] * 1000),
                ended["cpu_us"],
                last.memory_kib if last is not None and near else 0,
                ended["read_bytes"],
                ended["written_bytes"],
            )
            meter.finish(final, ended.get("memory_peak_kib"))
        self._finish_metering(allocation)
        self._node.leave_group(allocation.id)

    def _lose(self, allocation: Allocation) -> None:
        """Report what cannot be known; nothing of it may run on, since somebody may run it again."""
        allocation.phase = UNKNOWN
        identity = identity_of(allocation.start)
        if identity is None:
            allocation.detail = allocation.start.get(
                "detail", "claimed, but never seen to start: the agent ended in between"
            )
        elif identity.boot_id != boot_id():
            allocation.detail = "the host was restarted while it ran"
        else:
            allocation.detail = "its wrapper ended without recording an exit"
            self._sample(allocation)
        group = self._node.group(allocation)
        group.kill()
        self._end_runtime(allocation)
        self._finish_metering(allocation)
        group.remove()

    def _end_runtime(self, allocation: Allocation) -> None:
        """End and have removed what a lost wrapper may have left of its runtime."""
        self._node.runtimes.kill(allocation.run)
        if self._outlives(allocation):
            self._node.on_stray(allocation.id)

    def _outlives(self, allocation: Allocation) -> bool:
        claim = allocation.run.record("claim")
        return claim is not None and self._node.runtimes.of(claim).outlives

    def may_have_strays(self) -> bool:
        """Return whether the runtime of any allocation that is known may have left something on the host."""
        return any(map(self._outlives, self._node.register.allocations.values()))

    def clear_strays(self, found: list[str]) -> None:
        """Have removed what runtimes keep of allocations that do not live: the host was restarted, or a wrapper died."""
        for name in found:
            allocation = self._node.register.allocations.get(name)
            if allocation is None or allocation.phase not in LIVE:
                self._node.on_stray(name)

    def _finish_metering(self, allocation: Allocation) -> None:
        meter = allocation.meter
        if meter is None:
            return
        allocation.totals = meter.totals()
        self._fold(allocation, everything=True)
        meter.close()
        allocation.meter = None

    def _fold(self, allocation: Allocation, *, everything: bool) -> None:
        meter = allocation.meter
        minutes = meter.fold(everything=everything) if meter is not None else []
        if meter is None or not minutes:
            return
        reach("before-fold")
        if not self._node.spool.add([{"allocation_id": allocation.id, **minute} for minute in minutes]):
            self._node.notice("Minutes of usage have no room on the disk; they are lost if the agent ends.")
        if self._node.spool.dropped:
            self._node.notice("Minutes of usage were dropped: nobody has fetched them for too long.")
        reach("after-fold")
        meter.mark(max(minute["until_ms"] for minute in minutes))

    # Telling

    def observed(self, allocation: Allocation) -> dict[str, Any]:
        """Return what is known of *allocation*."""
        ended = allocation.exit
        body: dict[str, Any] = {
            "allocation_id": allocation.id,
            "phase": allocation.phase,
            "token": allocation.token,
            "node_id": self._node.machine.node_id if allocation.claimed else None,
            "step": allocation.step,
            "started_at": allocation.start.get("started_at"),
            "detail": allocation.detail,
            "resources": allocation.resources if allocation.claimed else None,
            "meters": {**allocation.totals, **_carried(allocation)},
            "log_bytes": ended["log_bytes"] if "log_bytes" in ended else end_of_log(allocation.run.log),
        }
        if allocation.stopped:
            body["ending"] = "stopped"
        if ended:
            body.update(exit_code=ended["exit_code"], ending=ended["ending"], ended_at=ended["ended_at"])
        return body


def _carried(allocation: Allocation) -> dict[str, int]:
    """Return the bytes of the network as meters; nothing where they are not counted."""
    if not allocation.link:
        return {}
    counted = {"received_bytes": 0, "sent_bytes": 0, **allocation.carried}
    return {name: max(count, allocation.exit.get(name, 0)) for name, count in counted.items()}
