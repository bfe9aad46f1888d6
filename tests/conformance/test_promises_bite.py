"""An engine that breaks one promise fails the test of that promise."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from yunhe.conformance.caller import EngineCaller, archive_of, chunks_of
from yunhe.conformance.engine_promises import EnginePromises
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.model import (
    Description,
    Ending,
    Inventory,
    LaunchOrder,
    LogChunk,
    Meters,
    Observation,
    Power,
    Upload,
    UsageMinute,
)
from yunhe.infrastructure.fake.allocation import FakeAllocation
from yunhe.infrastructure.fake.engine import FakeEngine
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.kernel.errors import ConflictError, FencedError, NotFoundError
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

pytestmark = pytest.mark.anyio


class RunsAgainWhenAsked(FakePool):
    def launch(self, order: LaunchOrder, *, crash: bool = False) -> None:
        known = self._allocations.get(order.allocation_id)
        super().launch(order, crash=crash)
        if known is not None and not known.live:
            known.log.write(b"started\n")


class ForgetsWhatItReleased(FakePool):
    def release(self, allocation_id: AllocationId, token: int) -> None:
        super().release(allocation_id, token)
        del self._marks[allocation_id]


class ForgetsWhatItStopped(FakePool):
    def stop(self, allocation_id: AllocationId, token: int, grace_s: float) -> None:
        super().stop(allocation_id, token, grace_s)
        self._marks.clear()


class ObeysAnybody(FakePool):
    def _fenced(self, allocation_id: AllocationId, token: int) -> FakeAllocation | None:
        with suppress(FencedError):
            return super()._fenced(allocation_id, token)
        return self._allocations.get(allocation_id)


class KeepsTheFirstToken(FakePool):
    def launch(self, order: LaunchOrder, *, crash: bool = False) -> None:
        known = self._allocations.get(order.allocation_id)
        token = known.token if known else order.token
        super().launch(order, crash=crash)
        self._allocations[order.allocation_id].token = token


class ReleasesWhatRuns(FakePool):
    def release(self, allocation_id: AllocationId, token: int) -> None:
        with suppress(ConflictError):
            super().release(allocation_id, token)
        self._allocations.pop(allocation_id, None)


class NeverStops(FakePool):
    def stop(self, allocation_id: AllocationId, token: int, grace_s: float) -> None:
        self._command(allocation_id, token)


class HasNoPatience(FakePool):
    def stop(self, allocation_id: AllocationId, token: int, grace_s: float) -> None:
        super().stop(allocation_id, token, 0)


class KillsWithTheShell(FakePool):
    def _ask(self, allocation: FakeAllocation, at: float, ending: Ending, grace_s: float) -> None:
        super()._ask(allocation, at, ending, 0)


class ForgetsTheGrace(FakePool):
    def launch(self, order: LaunchOrder, *, crash: bool = False) -> None:
        super().launch(msgspec.structs.replace(order, grace_s=10.0), crash=crash)


class AlwaysSucceeds(FakePool):
    def observation(self, beyond: int = -1) -> Observation:
        seen = super().observation(beyond)
        return msgspec.structs.replace(
            seen,
            allocations=tuple(
                msgspec.structs.replace(a, exit_code=0 if a.ending is Ending.DONE else None)
                for a in seen.allocations
            ),
        )


class TellsSecrets(FakePool):
    def observation(self, beyond: int = -1) -> Observation:
        for allocation in self._allocations.values():
            allocation.detail = str(allocation.order.secrets if allocation.order else "")
        return super().observation(beyond)


class LosesCount(FakePool):
    def observation(self, beyond: int = -1) -> Observation:
        seen = super().observation(beyond)
        forgetful = tuple(
            msgspec.structs.replace(a, meters=Meters()) if a.ending else a for a in seen.allocations
        )
        return msgspec.structs.replace(seen, allocations=forgetful)


class IgnoresTimeouts(FakePool):
    def launch(self, order: LaunchOrder, *, crash: bool = False) -> None:
        super().launch(msgspec.structs.replace(order, timeout_s=None), crash=crash)


class IgnoresLimits(FakePool):
    def resize(self, allocation_id: AllocationId, token: int, resources: Resources) -> None:
        self._command_running(allocation_id, token)

    def pin(self, allocation_id: AllocationId, token: int, cores: tuple[int, ...]) -> None:
        self._command_running(allocation_id, token)

    def pause(self, allocation_id: AllocationId, token: int) -> None:
        self._command_running(allocation_id, token)


class TrustsArchives(FakePool):
    def put(self, upload: Upload, archive: bytes) -> None:
        honest = msgspec.structs.replace(upload, digest=upload.digest, size_bytes=len(archive))
        super().put(honest, archive)


class NeverWakes(FakeEngine):
    async def observe(self, *, beyond: int = -1, wait_s: float = 0.0) -> Observation:
        return await super().observe()


class WaitsForever(FakeEngine):
    async def observe(self, *, beyond: int = -1, wait_s: float = 0.0) -> Observation:
        return await super().observe(beyond=beyond, wait_s=wait_s + 3.0)


class LeavesChangesOut(FakePool):
    def observation(self, beyond: int = -1) -> Observation:
        seen = super().observation(beyond)
        kept = seen.allocations if seen.since == -1 else seen.allocations[:-1]
        return msgspec.structs.replace(seen, allocations=kept)


class KeepsTheGone(FakePool):
    def observation(self, beyond: int = -1) -> Observation:
        return msgspec.structs.replace(super().observation(beyond), gone=())


class ClaimsToRemember(FakePool):
    def observation(self, beyond: int = -1) -> Observation:
        seen = super().observation(beyond)
        return seen if beyond == -1 else msgspec.structs.replace(seen, since=beyond, allocations=())


class RepeatsItself(FakeEngine):
    async def logs(
        self, allocation_id: AllocationId, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        async for chunk in super().logs(allocation_id, offset=max(0, offset - 1), follow=follow):
            yield LogChunk(offset=chunk.offset + min(offset, 1), data=chunk.data)


class TellsEverythingAgain(FakeEngine):
    async def usage(self, *, beyond: int = -1) -> AsyncIterator[UsageMinute]:
        async for minute in super().usage():
            yield minute


class ReadsEveryArchive(FakeEngine):
    async def put_archive(self, upload: Upload, chunks: AsyncIterator[bytes]) -> None:
        whole = b"".join([chunk async for chunk in chunks])
        await super().put_archive(upload, chunks_of(whole))


class Boasts(FakeEngine):
    powers = frozenset(Power) - {Power.EXEC}


class DoesNotSayWhy(FakeEngine):
    async def describe(self) -> Description:
        description = await super().describe()
        said = {power: why for power, why in description.missing.items() if power != Power.CHECKPOINT}
        return msgspec.structs.replace(description, missing=said)


class SaysNo(FakeEngine):
    async def describe(self) -> Description:
        description = await super().describe()
        return msgspec.structs.replace(description, missing={**description.missing, Power.VOLUMES: "no"})


class NamesNodesAlike(FakeEngine):
    async def inventory(self) -> Inventory:
        inventory = await super().inventory()
        return msgspec.structs.replace(inventory, nodes=inventory.nodes * 2)


class RefusesWhatItHas(FakePool):
    def expects(self, upload: Upload) -> bool:
        known = self._allocations.get(upload.allocation_id)
        if known is not None and known.order is not None:
            raise ConflictError(f"{upload.allocation_id} takes no more files.")
        return super().expects(upload)


class ForgetsWhatItGave(FakeEngine):
    async def get_archive(self, allocation_id: AllocationId, paths: tuple[str, ...]) -> AsyncIterator[bytes]:
        async for piece in super().get_archive(allocation_id, paths):
            yield piece
        self.pool.release(allocation_id, 1)


class GivesNothingInstead(FakeEngine):
    async def get_archive(self, allocation_id: AllocationId, paths: tuple[str, ...]) -> AsyncIterator[bytes]:
        try:
            async for piece in super().get_archive(allocation_id, paths):
                yield piece
        except NotFoundError:
            yield archive_of({})


BROKEN: list[tuple[type[FakePool] | type[FakeEngine], str, dict[str, object]]] = [
    (RunsAgainWhenAsked, "test_an_allocation_launched_again_and_again_runs_once", {}),
    (ForgetsWhatItReleased, "test_a_released_allocation_never_runs_again", {}),
    (ForgetsWhatItReleased, "test_the_mark_of_a_released_allocation_still_fences", {}),
    (ForgetsWhatItStopped, "test_a_launch_that_comes_after_its_stop_starts_nothing", {"late_token": 4}),
    (ForgetsWhatItStopped, "test_a_launch_that_comes_after_its_stop_starts_nothing", {"late_token": 5}),
    (ObeysAnybody, "test_an_older_token_is_refused_and_changes_nothing", {}),
    (ObeysAnybody, "test_an_older_token_puts_no_file", {}),
    (ObeysAnybody, "test_an_older_token_changes_no_limit", {"power": Power.PAUSE}),
    (KeepsTheFirstToken, "test_a_newer_token_takes_over_without_a_second_start", {}),
    (ReleasesWhatRuns, "test_what_still_runs_is_not_released", {}),
    (NeverStops, "test_a_stop_ends_it_and_may_be_repeated", {}),
    (HasNoPatience, "test_what_ignores_the_polite_signal_is_forced_after_the_grace", {}),
    (KillsWithTheShell, "test_what_a_script_started_may_save_its_work_before_it_is_forced", {}),
    (KillsWithTheShell, "test_what_was_saved_after_the_polite_signal_is_among_the_results", {}),
    (KillsWithTheShell, "test_what_timed_out_may_save_its_work_before_it_is_forced", {}),
    (ForgetsTheGrace, "test_the_task_knows_how_long_it_will_have", {}),
    (AlwaysSucceeds, "test_the_exit_code_is_the_script_s_own", {"code": 42}),
    (AlwaysSucceeds, "test_the_first_step_that_fails_ends_it_and_is_named", {}),
    (TellsSecrets, "test_a_secret_reaches_the_script_and_no_observation", {}),
    (LosesCount, "test_meters_only_grow", {}),
    (IgnoresTimeouts, "test_a_timeout_ends_it_as_timed_out", {}),
    (IgnoresLimits, "test_new_limits_are_seen_and_the_work_goes_on", {}),
    (IgnoresLimits, "test_a_pinned_allocation_sees_only_its_cores", {}),
    (IgnoresLimits, "test_a_paused_allocation_stands_still_until_it_is_resumed", {}),
    (TrustsArchives, "test_a_bad_archive_is_refused_whole", {"fault": "size"}),
    (NeverWakes, "test_a_waiting_observer_wakes_when_something_happens", {}),
    (WaitsForever, "test_an_observer_waits_no_longer_than_it_asked", {}),
    (LeavesChangesOut, "test_changes_folded_one_after_another_are_what_a_look_at_everything_shows", {}),
    (KeepsTheGone, "test_changes_folded_one_after_another_are_what_a_look_at_everything_shows", {}),
    (
        ClaimsToRemember,
        "test_a_version_that_the_engine_does_not_know_is_answered_with_everything",
        {},
    ),
    (RepeatsItself, "test_output_can_be_read_from_every_byte", {}),
    (TellsEverythingAgain, "test_every_minute_of_use_is_handed_out_in_sequence", {}),
    (ReadsEveryArchive, "test_the_same_archive_again_costs_nothing", {}),
    (RefusesWhatItHas, "test_the_same_archive_again_is_welcome_after_the_launch", {}),
    (ForgetsWhatItGave, "test_results_stay_until_the_release_and_are_not_found_after_it", {}),
    (GivesNothingInstead, "test_results_stay_until_the_release_and_are_not_found_after_it", {}),
    (Boasts, "test_it_has_what_it_declares_and_says_why_it_lacks_the_rest", {}),
    (DoesNotSayWhy, "test_it_has_what_it_declares_and_says_why_it_lacks_the_rest", {}),
    (SaysNo, "test_it_has_what_it_declares_and_says_why_it_lacks_the_rest", {}),
    (NamesNodesAlike, "test_its_nodes_have_names_of_their_own_and_use_no_less_than_nothing", {}),
]


def build(culprit: type[FakePool] | type[FakeEngine]) -> FakeEngine:
    if issubclass(culprit, FakePool):
        return FakeEngine(culprit())
    return culprit(FakePool())


@pytest.mark.parametrize(
    ("culprit", "promise", "values"),
    BROKEN,
    ids=[f"{culprit.__name__}-{promise}" for culprit, promise, _ in BROKEN],
)
async def test_a_broken_promise_is_noticed(
    culprit: type[FakePool] | type[FakeEngine], promise: str, values: dict[str, Any]
) -> None:
    promises = EnginePromises()
    promises.tick_s, promises.patience_s = 0.05, 0.5
    engine = build(culprit)
    node = (await engine.inventory()).nodes[0]
    caller = EngineCaller(engine, node.id, promises.project_id, promises.resources, promises.patience_s)
    test = getattr(promises, promise)
    given: dict[str, EngineCaller | Engine] = {"caller": caller, "engine": engine}
    wanted = {name: given[name] for name in ("caller", "engine") if name in test.__annotations__}
    with pytest.raises(BaseException) as failure:
        await test(**wanted, **values)
    assert any(
        isinstance(
            error, AssertionError | pytest.fail.Exception | ConflictError | FencedError | NotFoundError
        )
        for error in _flat(failure.value)
    ), failure.value


def _flat(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _flat(inner)]
    return [error]
