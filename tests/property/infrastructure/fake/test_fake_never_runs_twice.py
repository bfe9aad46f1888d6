"""Whatever is called, in whatever order, with whatever tokens and faults: no allocation runs twice."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from yunhe.infrastructure.contract.model import LaunchOrder, Observed, Phase, Step
from yunhe.infrastructure.fake.engine import FakeEngine
from yunhe.infrastructure.fake.faults import Fault, Faults, deliver
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.infrastructure.fake.timeline import ScriptedTime
from yunhe.kernel.errors import ConflictError, FencedError, PoolUnreachableError
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId
from yunhe.kernel.resources import Resources

IDS = [AllocationId(f"alloc_{n}") for n in range(3)]
NODES = [NodeId("n1"), NodeId("n2")]
FINAL = {Phase.EXITED, Phase.UNKNOWN}

ids = st.sampled_from(IDS)
tokens = st.integers(1, 4)
nodes = st.sampled_from(NODES)
network = st.sampled_from([None] * 6 + [Fault.UNHEARD, Fault.UNANSWERED, Fault.LATE, Fault.DUPLICATED])


class Commands(RuleBasedStateMachine):
    """The model is what a bystander can know: which tokens were surely heard, which allocations were surely stopped."""

    @initialize()
    def open(self) -> None:
        self.time = ScriptedTime()
        self.pool = FakePool(nodes=dict.fromkeys(NODES, Resources(cpu_millis=4000)), time=self.time)
        self.faults = Faults()
        self.engine = FakeEngine(self.pool, self.faults)
        self.loop = asyncio.Runner()
        self.heard: dict[AllocationId, int] = {}
        self.barred: set[AllocationId] = set()
        self.final: dict[AllocationId, Observed] = {}
        self.gone: set[AllocationId] = set()
        self.version = -1
        self.in_flight = False

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    def send(
        self, verb: str, allocation_id: AllocationId, token: int, call: Coroutine[Any, Any, None]
    ) -> bool:
        """Send a command; return whether it surely had its effect; check that a fenced one had none."""
        before = self.loop.run(self.engine.observe())
        quiet = not self.in_flight
        try:
            self.loop.run(call)
        except FencedError:
            assert self.in_flight or token < self.heard[allocation_id]
            if quiet:
                assert self.loop.run(self.engine.observe()) == before
            return False
        except (PoolUnreachableError, ConflictError):
            return False
        assert token >= self.heard.get(allocation_id, token), f"{verb} with an old token was obeyed"
        self.heard[allocation_id] = token
        return True

    def inject(self, verb: str, fault: Fault | None) -> None:
        if fault is not None:
            self.faults.inject(verb, fault)
            self.in_flight |= fault in {Fault.LATE, Fault.DUPLICATED, Fault.UNANSWERED}

    @rule(
        allocation_id=ids,
        token=tokens,
        node_id=nodes,
        run_s=st.integers(0, 3),
        fault=network | st.just(Fault.CRASHED),
    )
    def launch(
        self, allocation_id: AllocationId, token: int, node_id: NodeId, run_s: int, fault: Fault | None
    ) -> None:
        self.inject("launch", fault)
        self.in_flight |= fault is Fault.CRASHED
        order = LaunchOrder(
            allocation_id=allocation_id,
            token=token,
            project_id=ProjectId("p"),
            node_id=node_id,
            resources=Resources(cpu_millis=100),
            steps=(Step(name="run", script=f"echo started\nsleep {run_s}\nexit {run_s}"),),
        )
        self.send("launch", allocation_id, token, self.engine.launch(order))

    @rule(allocation_id=ids, token=tokens, fault=network)
    def stop(self, allocation_id: AllocationId, token: int, fault: Fault | None) -> None:
        known = {seen.allocation_id for seen in self.loop.run(self.engine.observe()).allocations}
        self.inject("stop", fault)
        quiet = not self.in_flight
        stopped = self.send("stop", allocation_id, token, self.engine.stop(allocation_id, token))
        if stopped and quiet and allocation_id not in known and allocation_id not in self.pool.executed:
            self.barred.add(allocation_id)

    @rule(allocation_id=ids, token=tokens, fault=network)
    def release(self, allocation_id: AllocationId, token: int, fault: Fault | None) -> None:
        self.inject("release", fault)
        if self.send("release", allocation_id, token, self.engine.release(allocation_id, token)):
            self.gone.add(allocation_id)

    @rule(seconds=st.integers(1, 2))
    def pass_time(self, seconds: int) -> None:
        self.time.advance(seconds)

    @rule(node_id=nodes, comes_back=st.booleans())
    def lose_node(self, node_id: NodeId, comes_back: bool) -> None:
        self.pool.restore_node(NODES[0])
        self.pool.restore_node(NODES[1])
        self.pool.lose_node(node_id)
        if comes_back:
            self.pool.restore_node(node_id)

    @precondition(lambda self: self.in_flight)
    @rule()
    def let_everything_arrive(self) -> None:
        deliver(self.faults.held())
        for seen in self.pool.observation().allocations:
            self.heard[seen.allocation_id] = max(seen.token, self.heard.get(seen.allocation_id, 0))

    @invariant()
    def nothing_ran_twice(self) -> None:
        executed = self.pool.executed
        assert len(set(executed)) == len(executed)
        assert not self.barred & set(executed)

    @invariant()
    def what_has_ended_stays_ended(self) -> None:
        observation = self.loop.run(self.engine.observe())
        assert observation.version >= self.version
        self.version = observation.version
        for seen in observation.allocations:
            assert seen.allocation_id not in self.gone
            known = self.final.setdefault(seen.allocation_id, seen) if seen.phase in FINAL else None
            if known is not None:
                assert (seen.phase, seen.exit_code, seen.ended_at) == (
                    known.phase,
                    known.exit_code,
                    known.ended_at,
                )
            elif seen.allocation_id in self.final:
                raise AssertionError(f"{seen} had ended before")
            assert seen.log_bytes in {0, len(b"started\n")}


TestCommands = Commands.TestCase
TestCommands.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
