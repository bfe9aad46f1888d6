"""What a record and its pod together say of an allocation; what has no meaning here is ``unknown`` and named."""

from datetime import datetime

import msgspec

from yunhe.infrastructure.contract.model import Ending, Meters, Observed, Phase
from yunhe.infrastructure.kubernetes.api.answers import decode
from yunhe.infrastructure.kubernetes.api.shapes import ContainerStatus, Pod, PodStatus, Record, Terminated
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.pods import RecordState
from yunhe.infrastructure.kubernetes.objects.quantities import mib, millis
from yunhe.infrastructure.kubernetes.objects.wrapper import TIMED_OUT, read_note
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.kernel.errors import ConflictError, PoolUnreachableError
from yunhe.kernel.ids import AllocationId, NodeId
from yunhe.kernel.resources import Accelerators, Resources

UNMADE_AFTER_S = 60.0
"""A record this old without a pod: whoever claimed it went away before making one."""

SETTLED_AFTER_S = 5.0
"""After the grace. A node says why it ended a pod only when all of it has ended, and the keeper may take the whole grace."""

_SIGNALLED = (137, 143)
_OVER = frozenset({"Succeeded", "Failed"})
_GOING = frozenset({"Pending", "Running"})
_STORAGE_WORDS = ("ephemeral local storage", "ephemeral-storage", "EmptyDir volume")
_LOST_PLACE = frozenset({"Evicted", "Preempting", "Preempted", "Terminated", "NodeShutdown", "Shutdown"})
_NOT_ADMITTED = frozenset({"NodeAffinity", "UnexpectedAdmissionError", "TopologyAffinityError", "NodePorts"})
_NOBODY_KNOWS = frozenset({"ContainerStatusUnknown", "Unknown"})
"""What a node says of a container that it finds gone: the exit code beside it is made up."""
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
_DISRUPTED = frozenset(
    {"PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI", "TerminationByKubelet"}
)


class Final(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is written on a pod once it is over and all of it has been read; nothing changes afterwards."""

    log_bytes: int = 0
    step: str = ""
    meters: Meters = Meters()
    detail: str = ""
    ending: Ending | None = None
    """How the task of a pod with a keeper ended, and below it the rest of that: what befalls the pod afterwards must not
    change it."""
    exit_code: int | None = None
    ended_at: float | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a running pod beyond what the API tells."""

    step: str = ""
    log_bytes: int = 0
    meters: Meters = Meters()


class PodVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """How a pod stands."""

    phase: Phase
    ending: Ending | None = None
    detail: str = ""


def is_over(pod: Pod) -> bool:
    """Return whether nothing of a task runs or will run; its keeper may."""
    kept = has_keeper(pod) and terminated_of(pod) is not None
    return kept or is_gone(pod)


def is_gone(pod: Pod) -> bool:
    """Return whether nothing of a pod runs or will run, a keeper neither."""
    never_began = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return pod.status.phase in _OVER or never_began


def has_keeper(pod: Pod) -> bool:
    """Return whether the task's directory outlives it."""
    return any(container.name == names.KEEPER for container in pod.spec.containers)


def unsettled_s(record: Record, pod: Pod, now: float) -> float:
    """Return how long the node may yet take to say why it ended a task, 0 where nothing more can come of waiting.

    Only one that a signal ended, with a keeper beside it, can have been ended by the node for a reason not told yet.
    """
    ended, status = terminated_of(pod), pod.status
    if ended is None or not has_keeper(pod) or is_gone(pod) or ended.exit_code not in _SIGNALLED:
        return 0.0
    explained = ended.reason == "OOMKilled" or status.reason or read_note(ended.message).why
    ours = state_of(record) is not RecordState.CLAIMED or pod.metadata.deletion_timestamp is not None
    if explained or ours:
        return 0.0
    settled_after_s = pod.spec.termination_grace_period_seconds + SETTLED_AFTER_S
    return max(0.0, (epoch(ended.finished_at) or now) + settled_after_s - now)


def state_of(record: Record) -> RecordState:
    """Return what a record says; a label we never wrote is an error, not a guess."""
    label = record.metadata.labels.get(names.STATE, "")
    if label not in set(RecordState):
        raise ConflictError(
            f"The ConfigMap {record.metadata.name} has the label {names.STATE}={label!r}, which has no meaning.",
            remedy=f"Set it to one of {', '.join(RecordState)}.",
        )
    return RecordState(label)


def token_of(record: Record) -> int:
    """Return the highest token that a record has seen."""
    return int(record.metadata.annotations.get(names.TOKEN, "0"))


def allocation_of(record: Record) -> AllocationId:
    """Return whose record it is."""
    return AllocationId(record.metadata.annotations[names.ALLOCATION])


def first_step(record: Record) -> str:
    """Return the step that a container begins with."""
    steps = decode(record.metadata.annotations.get(names.STEPS, "[]"), list[str])
    return steps[0] if steps else ""


def final_of(pod: Pod) -> Final | None:
    """Return what was written on a pod when it was over."""
    text = pod.metadata.annotations.get(names.FINAL)
    return decode(text, Final) if text else None


def observed(
    record: Record, pod: Pod | None, progress: Progress, settings: ClusterSettings, now: float
) -> Observed:
    """Return what is known of one allocation."""
    allocation_id, token = allocation_of(record), token_of(record)
    try:
        state_of(record)
    except ConflictError as error:
        return Observed(allocation_id=allocation_id, token=token, phase=Phase.UNKNOWN, detail=str(error))
    if pod is None:
        verdict = _without_pod(record, now)
        return Observed(
            allocation_id=allocation_id,
            token=token,
            phase=verdict.phase,
            ending=verdict.ending,
            detail=verdict.detail,
        )
    final = final_of(pod)
    if final is not None and final.ending is not None:
        verdict = PodVerdict(phase=Phase.EXITED, ending=final.ending)
    else:
        verdict = verdict_of(record, pod)
    if verdict.phase is Phase.EXITED and final is None and has_run(pod):
        # It is over, but not all of it is read: the exit is told once, complete.
        verdict = PodVerdict(phase=Phase.RUNNING)
    known = final or Final(step=progress.step, log_bytes=progress.log_bytes, meters=progress.meters)
    if verdict.phase is Phase.EXITED and known.ending is None:
        known = with_end(known, verdict, pod)
    return Observed(
        allocation_id=allocation_id,
        token=token,
        phase=verdict.phase,
        ending=verdict.ending,
        detail=verdict.detail or known.detail,
        node_id=NodeId(pod.spec.node_name) if pod.spec.node_name else None,
        step=known.step,
        exit_code=known.exit_code if verdict.phase is Phase.EXITED else None,
        started_at=started_at(pod),
        ended_at=known.ended_at if verdict.phase is Phase.EXITED else None,
        resources=resources_of(pod, settings),
        meters=known.meters,
        log_bytes=known.log_bytes,
    )


def with_end(final: Final, verdict: PodVerdict, pod: Pod) -> Final:
    """Return *final* with how a task has ended."""
    ended = terminated_of(pod)
    return msgspec.structs.replace(
        final,
        ending=verdict.ending,
        detail=verdict.detail or final.detail,
        exit_code=ended.exit_code if ended is not None else None,
        ended_at=epoch(ended.finished_at) if ended is not None else None,
    )


def verdict_of(record: Record, pod: Pod) -> PodVerdict:
    """Return how a pod stands."""
    status = pod.status
    if status.reason == "NodeLost":
        return PodVerdict(phase=Phase.UNKNOWN, detail=f"The node is lost: {status.message}".rstrip(": "))
    if is_over(pod):
        return _ended(record, pod)
    if status.phase not in _GOING:
        return PodVerdict(phase=Phase.UNKNOWN, detail=f"The pod's phase is {status.phase or 'empty'!r}.")
    state = container_of(pod)
    if state is not None and (state.state.running or state.state.terminated):
        return PodVerdict(phase=Phase.RUNNING)
    return PodVerdict(phase=Phase.STARTING, detail=_why_not_yet(pod, state))


def _without_pod(record: Record, now: float) -> PodVerdict:
    if state_of(record) is RecordState.PREPARING:
        return PodVerdict(phase=Phase.PREPARING)
    if state_of(record) is not RecordState.CLAIMED:
        return PodVerdict(phase=Phase.EXITED, ending=Ending.STOPPED, detail="It was stopped before it began.")
    if now - (_claimed_at(record) or now) < UNMADE_AFTER_S:
        return PodVerdict(phase=Phase.STARTING)
    return PodVerdict(phase=Phase.UNKNOWN, detail="It was claimed, and no pod was made for it.")


def _claimed_at(record: Record) -> float | None:
    """Return when the launch came; a record that no file had come for was made by it."""
    text = record.metadata.annotations.get(names.CLAIMED_AT)
    return float(text) if text else epoch(record.metadata.creation_timestamp)


def _befell_keeper(pod: Pod, ended: Terminated | None) -> bool:
    """Return whether what the node says of a pod came when its task had ended already."""
    if ended is None or not has_keeper(pod):
        return False
    if pod.status.reason == "DeadlineExceeded":
        began, finished = epoch(pod.status.start_time), epoch(ended.finished_at)
        deadline_s = pod.spec.active_deadline_seconds or 0
        return began is not None and finished is not None and finished < began + deadline_s
    return ended.exit_code == 0


def _ended(record: Record, pod: Pod) -> PodVerdict:
    """Return how it came to its end: first what we did, then what the node and the cluster say."""
    status, ended = pod.status, terminated_of(pod)
    if _befell_keeper(pod, ended):
        status = PodStatus(phase=status.phase)
    note = read_note(ended.message if ended is not None else "")
    words = status.message or status.reason
    disrupted = status.condition("DisruptionTarget")
    if state_of(record) is not RecordState.CLAIMED:
        return PodVerdict(phase=Phase.EXITED, ending=Ending.STOPPED)
    if note.why == TIMED_OUT:
        return PodVerdict(phase=Phase.EXITED, ending=Ending.TIMED_OUT)
    if status.reason == "DeadlineExceeded":
        return PodVerdict(phase=Phase.EXITED, ending=Ending.TIMED_OUT, detail=words)
    if ended is not None and ended.reason == "OOMKilled":
        return PodVerdict(phase=Phase.EXITED, ending=Ending.OUT_OF_MEMORY, detail=note.step)
    if status.reason == "Evicted" and any(word in status.message for word in _STORAGE_WORDS):
        return PodVerdict(phase=Phase.EXITED, ending=Ending.DISK_FULL, detail=words)
    if status.reason in _LOST_PLACE or status.reason in _NOT_ADMITTED or status.reason.startswith("OutOf"):
        return PodVerdict(phase=Phase.EXITED, ending=Ending.PREEMPTED, detail=words)
    if disrupted is not None and disrupted.reason in _DISRUPTED:
        return PodVerdict(phase=Phase.EXITED, ending=Ending.PREEMPTED, detail=disrupted.message)
    if ended is not None and ended.reason in _NOBODY_KNOWS:
        return PodVerdict(phase=Phase.UNKNOWN, detail=ended.message or f"The node says {ended.reason}.")
    if not status.reason and ended is not None and ended.exit_code is not None:
        deleted = pod.metadata.deletion_timestamp is not None
        if deleted and ended.exit_code in _SIGNALLED:
            return PodVerdict(phase=Phase.EXITED, ending=Ending.STOPPED, detail="Somebody deleted its pod.")
        return PodVerdict(phase=Phase.EXITED, ending=Ending.DONE, detail=note.why or _not_started(ended))
    if not status.phase or status.phase == "Pending":
        return PodVerdict(
            phase=Phase.EXITED, ending=Ending.STOPPED, detail="Its pod was deleted before it began."
        )
    reason = status.reason or (disrupted.reason if disrupted is not None else "") or status.phase
    return PodVerdict(phase=Phase.UNKNOWN, detail=f"The pod ended with {reason!r}: {words or 'no message'}.")


def _not_started(ended: Terminated) -> str:
    """Return why a container could not be started; its exit code is the runtime's."""
    return f"{ended.reason}: {ended.message}" if ended.reason in _NOT_STARTED else ""


def _why_not_yet(pod: Pod, state: ContainerStatus | None) -> str:
    if state is not None and state.state.waiting is not None:
        waiting = state.state.waiting
        return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message
    return ""


def container_of(pod: Pod) -> ContainerStatus | None:
    """Return how the container stands, once the node has said so."""
    return next((one for one in pod.status.container_statuses if one.name == names.CONTAINER), None)


def terminated_of(pod: Pod) -> Terminated | None:
    """Return how the container ended."""
    state = container_of(pod)
    return state.state.terminated if state is not None else None


def is_running(pod: Pod) -> bool:
    """Return whether the container runs now, as far as its node has said."""
    state = container_of(pod)
    return state is not None and state.state.running is not None


def has_run(pod: Pod) -> bool:
    """Return whether the container has ever started, so that there may be a log."""
    return started_at(pod) is not None


def started_at(pod: Pod) -> float | None:
    """Return when the container started."""
    state = container_of(pod)
    if state is None:
        return None
    if state.state.running is not None:
        return epoch(state.state.running.started_at)
    return epoch(state.state.terminated.started_at) if state.state.terminated is not None else None


def resources_of(pod: Pod, settings: ClusterSettings) -> Resources | None:
    """Return the limits in force; those asked for, until the node has told."""
    state = container_of(pod)
    spec = next((one for one in pod.spec.containers if one.name == names.CONTAINER), None)
    actual = state.resources if state is not None else None
    limits = (
        actual.limits if actual is not None and actual.limits else spec.resources.limits if spec else None
    )
    if limits is None:
        return None
    kinds = pod.metadata.annotations.get(names.ACCELERATORS, "").split(",")
    return Resources(
        cpu_millis=millis(limits.get("cpu", "0")),
        memory_mib=mib(limits.get("memory", "0")),
        disk_mib=mib(limits.get("ephemeral-storage", "0")),
        accelerators=tuple(
            Accelerators(rule.kind, millis(limits[rule.resource]))
            for rule in settings.accelerators
            if rule.kind in kinds and rule.resource in limits
        ),
    )


def epoch(text: str | None) -> float | None:
    """Return the API's time in seconds since the epoch; what never was, runtimes tell as the epoch itself."""
    try:
        return (datetime.fromisoformat(text).timestamp() or None) if text else None
    except ValueError:
        raise PoolUnreachableError(f"The cluster tells the time {text!r}, which is none.") from None
