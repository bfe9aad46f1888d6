"""Each way a pod can stand or end is told as what it is; what is not known is unknown, by name."""

from collections.abc import Mapping

import msgspec
import pytest

from yunhe.infrastructure.contract.model import Ending, Meters, Phase
from yunhe.infrastructure.kubernetes.api.shapes import Pod, Record
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import (
    SETTLED_AFTER_S,
    Final,
    Progress,
    is_gone,
    is_over,
    observed,
    unsettled_s,
)
from yunhe.infrastructure.kubernetes.objects.pods import RecordState
from yunhe.infrastructure.kubernetes.target import ClusterSettings

NOW = 1_800_000_000.0
SETTINGS = ClusterSettings()


def record(state: RecordState = RecordState.CLAIMED, created: str = "2027-01-15T08:00:00Z") -> Record:
    body = {
        "metadata": {
            "name": "alloc-1",
            "creationTimestamp": created,
            "labels": {names.STATE: state},
            "annotations": {names.ALLOCATION: "alloc_1", names.TOKEN: "7"},
        }
    }
    return msgspec.convert(body, Record)


def pod(phase: str, state: Mapping[str, object] | None = None, **status: object) -> Pod:
    statuses = [{"name": "task", "state": state}] if state is not None else []
    final = Final(log_bytes=5, step="step-1", meters=Meters(wall_ms=3000))
    body = {
        "metadata": {"name": "alloc-1", "annotations": {names.FINAL: msgspec.json.encode(final).decode()}},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "task", "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}}],
        },
        "status": {"phase": phase, "containerStatuses": statuses, **status},
    }
    return msgspec.convert(body, Pod)


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, object]:
    times = {"startedAt": "2027-01-15T08:00:01Z", "finishedAt": "2027-01-15T08:00:04Z"}
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, **times}}


RUNNING = {"running": {"startedAt": "2027-01-15T08:00:01Z"}}


@pytest.mark.parametrize(
    ("seen", "phase", "ending"),
    [
        (pod("Pending"), Phase.STARTING, None),
        (pod("Pending", {"waiting": {"reason": "ImagePullBackOff"}}), Phase.STARTING, None),
        (pod("Running", RUNNING), Phase.RUNNING, None),
        (pod("Succeeded", ended(0, "Completed")), Phase.EXITED, Ending.DONE),
        (pod("Failed", ended(3)), Phase.EXITED, Ending.DONE),
        (pod("Failed", ended(137, "OOMKilled")), Phase.EXITED, Ending.OUT_OF_MEMORY),
        (pod("Failed", ended(143), reason="DeadlineExceeded"), Phase.EXITED, Ending.TIMED_OUT),
        (
            pod("Failed", ended(137), reason="Evicted", message="The node was low on resource: memory."),
            Phase.EXITED,
            Ending.PREEMPTED,
        ),
        (
            pod(
                "Failed",
                ended(137),
                reason="Evicted",
                message="Pod ephemeral local storage usage exceeds the total limit",
            ),
            Phase.EXITED,
            Ending.DISK_FULL,
        ),
        (
            pod(
                "Failed",
                ended(137),
                reason="Evicted",
                message='Usage of EmptyDir volume "work" exceeds the limit "1Mi".',
            ),
            Phase.EXITED,
            Ending.DISK_FULL,
        ),
        (
            pod("Failed", None, reason="OutOfcpu", message="Node didn't have enough resource"),
            Phase.EXITED,
            Ending.PREEMPTED,
        ),
        (
            pod(
                "Failed",
                ended(143),
                reason="Terminated",
                message="Pod was terminated in response to imminent node shutdown.",
            ),
            Phase.EXITED,
            Ending.PREEMPTED,
        ),
        (
            pod(
                "Failed",
                ended(137),
                conditions=[
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                ],
            ),
            Phase.EXITED,
            Ending.PREEMPTED,
        ),
        (
            pod(
                "Failed",
                None,
                conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}],
            ),
            Phase.UNKNOWN,
            None,
        ),
        (pod("Failed", ended(137, "ContainerStatusUnknown")), Phase.UNKNOWN, None),
        (pod("Failed", ended(255, "Unknown")), Phase.UNKNOWN, None),
        (pod("Failed", ended(128, "StartError")), Phase.EXITED, Ending.DONE),
        (pod("Running", RUNNING, reason="NodeLost"), Phase.UNKNOWN, None),
        (pod("Unknown", RUNNING), Phase.UNKNOWN, None),
        (pod("Failed", ended(1), reason="SomethingNew"), Phase.UNKNOWN, None),
        (pod("Brilliant"), Phase.UNKNOWN, None),
    ],
)
def test_how_a_pod_stands_is_told(seen: Pod, phase: Phase, ending: Ending | None) -> None:
    told = observed(record(), seen, Progress(), SETTINGS, NOW)
    assert (told.phase, told.ending) == (phase, ending)
    if phase is Phase.UNKNOWN:
        assert told.detail


@pytest.mark.parametrize("reason", ["SomethingNew", "Brilliant"])
def test_a_word_that_has_no_meaning_is_named(reason: str) -> None:
    told = observed(record(), pod("Failed", ended(1), reason=reason), Progress(), SETTINGS, NOW)
    assert reason in told.detail


def test_what_we_stopped_is_stopped_whatever_the_cluster_calls_it() -> None:
    seen = pod("Failed", ended(143), reason="DeadlineExceeded")
    told = observed(record(RecordState.STOPPED), seen, Progress(), SETTINGS, NOW)
    assert (told.phase, told.ending, told.exit_code) == (Phase.EXITED, Ending.STOPPED, 143)


def test_an_end_is_told_only_once_all_of_it_is_written_down() -> None:
    seen = pod("Succeeded", ended(0))
    bare = msgspec.structs.replace(seen, metadata=msgspec.structs.replace(seen.metadata, annotations={}))
    before = observed(record(), bare, Progress(step="step-1", log_bytes=2), SETTINGS, NOW)
    after = observed(record(), seen, Progress(), SETTINGS, NOW)
    assert (before.phase, before.exit_code) == (Phase.RUNNING, None)
    assert (after.phase, after.exit_code, after.log_bytes, after.step) == (Phase.EXITED, 0, 5, "step-1")
    assert (after.ended_at or 0) - (after.started_at or 0) == 3


def test_a_claim_without_a_pod_starts_then_is_unknown_and_never_guessed() -> None:
    fresh = observed(record(created="2027-01-15T08:00:00Z"), None, Progress(), SETTINGS, 1_800_000_030.0)
    old = observed(record(created="2027-01-15T07:00:00Z"), None, Progress(), SETTINGS, 1_800_000_030.0)
    assert (fresh.phase, old.phase) == (Phase.STARTING, Phase.UNKNOWN)


def test_a_pod_deleted_before_it_had_a_node_never_ran() -> None:
    body = {
        "metadata": {"name": "alloc-1", "deletionTimestamp": "2027-01-15T08:00:00Z"},
        "status": {"phase": "Pending"},
    }
    told = observed(record(), msgspec.convert(body, Pod), Progress(), SETTINGS, NOW)
    assert (told.phase, told.ending, told.started_at) == (Phase.EXITED, Ending.STOPPED, None)


def test_why_a_pod_waits_is_told() -> None:
    conditions = [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}]
    assert (
        "0/2 nodes"
        in observed(record(), pod("Pending", None, conditions=conditions), Progress(), SETTINGS, NOW).detail
    )
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    assert "no such image" in observed(record(), pod("Pending", waiting), Progress(), SETTINGS, NOW).detail


def test_a_record_that_somebody_has_spoilt_is_unknown_and_spoils_no_other() -> None:
    good = record()
    labels = {names.STATE: "improved"}
    spoilt = msgspec.structs.replace(good, metadata=msgspec.structs.replace(good.metadata, labels=labels))
    told = observed(spoilt, pod("Running", RUNNING), Progress(), SETTINGS, NOW)
    assert told.phase is Phase.UNKNOWN
    assert "improved" in told.detail


# With a keeper


def kept(
    task: Mapping[str, object], *, phase: str = "Running", final: Final | None = None, **status: object
) -> Pod:
    """Return a pod with a keeper beside its task; nothing is written on it yet unless there is *final*."""
    keeper = RUNNING if phase == "Running" else ended(137)
    said = {names.FINAL: msgspec.json.encode(final).decode()} if final is not None else {}
    body = {
        "metadata": {"name": "alloc-1", "annotations": said},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "task"}, {"name": "keeper"}],
            "activeDeadlineSeconds": 100,
        },
        "status": {
            "phase": phase,
            "startTime": "2027-01-15T08:00:00Z",
            "containerStatuses": [{"name": "task", "state": task}, {"name": "keeper", "state": keeper}],
            **status,
        },
    }
    return msgspec.convert(body, Pod)


LATE = {
    "terminated": {"exitCode": 143, "startedAt": "2027-01-15T08:00:01Z", "finishedAt": "2027-01-15T08:01:40Z"}
}
WRITTEN = Final(step="step-1")


@pytest.mark.parametrize(
    ("seen", "ending", "code"),
    [
        (kept(ended(0), final=WRITTEN), Ending.DONE, 0),
        (kept(ended(3), final=WRITTEN), Ending.DONE, 3),
        (kept(ended(8, message="step-1\x1etimed-out"), final=WRITTEN), Ending.TIMED_OUT, 8),
        (kept(ended(137, "OOMKilled"), final=WRITTEN), Ending.OUT_OF_MEMORY, 137),
        # What befell the keeper when the task had ended is nothing of the task's.
        (kept(ended(3), phase="Failed", final=WRITTEN, reason="DeadlineExceeded"), Ending.DONE, 3),
        (kept(ended(0), phase="Failed", final=WRITTEN, reason="Evicted"), Ending.DONE, 0),
        # What befell both is.
        (kept(LATE, phase="Failed", final=WRITTEN, reason="DeadlineExceeded"), Ending.TIMED_OUT, 143),
        (kept(ended(143), phase="Failed", final=WRITTEN, reason="Evicted"), Ending.PREEMPTED, 143),
    ],
)
def test_the_end_of_a_task_with_a_keeper_is_the_tasks_own(seen: Pod, ending: Ending, code: int) -> None:
    told = observed(record(), seen, Progress(), SETTINGS, NOW)
    assert (told.phase, told.ending, told.exit_code) == (Phase.EXITED, ending, code)


def test_an_end_that_was_written_down_stays_whatever_becomes_of_the_pod() -> None:
    final = Final(step="step-1", ending=Ending.DONE, exit_code=3, ended_at=5.0)
    lost = kept(ended(137, "ContainerStatusUnknown"), phase="Failed", final=final, reason="NodeLost")
    for state in (RecordState.CLAIMED, RecordState.STOPPED):
        told = observed(record(state), lost, Progress(), SETTINGS, NOW)
        assert (told.phase, told.ending, told.exit_code, told.ended_at) == (Phase.EXITED, Ending.DONE, 3, 5.0)


def test_a_task_is_over_before_its_keeper_and_the_pod_is_not_gone() -> None:
    assert is_over(kept(ended(0)))
    assert not is_gone(kept(ended(0)))
    assert not is_over(kept(RUNNING))
    assert is_gone(kept(ended(0), phase="Failed"))


def test_only_an_end_by_a_signal_that_nobody_explains_waits_for_the_nodes_reason() -> None:
    finished = 1_800_000_004.0
    assert unsettled_s(record(), kept(ended(143)), finished + 1) == 30 + SETTLED_AFTER_S - 1
    assert unsettled_s(record(), kept(ended(143)), finished + 30 + SETTLED_AFTER_S + 1) == 0
    assert unsettled_s(record(RecordState.STOPPED), kept(ended(143)), finished) == 0
    for seen in (
        kept(ended(1)),
        kept(ended(137, "OOMKilled")),
        kept(ended(143, message="step-1\x1etimed-out")),
        kept(ended(143), phase="Failed", reason="Evicted"),
        pod("Running", ended(143)),
    ):
        assert unsettled_s(record(), seen, finished) == 0


def test_files_that_could_not_be_unpacked_are_told_as_the_detail() -> None:
    told = observed(
        record(), pod("Failed", ended(125, message="\x1eThe image has no tar.")), Progress(), SETTINGS, NOW
    )
    assert (told.phase, told.ending, told.exit_code) == (Phase.EXITED, Ending.DONE, 125)
    assert told.detail == "The image has no tar."


def test_what_was_prepared_long_ago_and_claimed_now_is_starting() -> None:
    old = record(RecordState.PREPARING, created="2027-01-15T07:00:00Z")
    assert observed(old, None, Progress(), SETTINGS, NOW).phase is Phase.PREPARING
    fresh = record(created="2027-01-15T07:00:00Z")
    fresh.metadata.annotations[names.CLAIMED_AT] = f"{NOW - 5:.3f}"
    assert observed(fresh, None, Progress(), SETTINGS, NOW).phase is Phase.STARTING
