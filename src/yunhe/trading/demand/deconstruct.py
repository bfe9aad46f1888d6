"""A task → its Demand: what must hold wherever it runs, and what is preferred. Pure."""

import msgspec

from yunhe.kernel.confinement import Confinement
from yunhe.kernel.ids import JobId, ProjectId
from yunhe.kernel.places import parse_place
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Alternative, Demand, Domain, GraphDemand, Part, Spread, Tie
from yunhe.trading.demand import amounts
from yunhe.trading.demand.model import ResourceSpec, Task
from yunhe.trading.demand.placement_fields import TAKEN_BACK, demanded

DEFAULT_CPU_MILLIS = 1000
DEFAULT_MEMORY_MIB = 1024
DEFAULT_GRACE_S = 30.0
DEFAULT_LOG_BYTES = 64 * 2**20


def deconstruct(task: Task, job_id: JobId, project_id: ProjectId, now: float) -> Demand:
    """Return the demand of a task that was parsed and is submitted at *now*."""
    spec = task.resources
    wishes = tuple(_over(spec, choice) for choice in spec.ordered or spec.any_of) or (spec,)
    demand = _demand(task, wishes, (job_id, project_id), now)
    members = task.num_nodes if task.service is None else task.service.replicas
    if members == 1:
        return demand
    spread = demand.spread or Spread(Domain.NODE, 1)
    return msgspec.structs.replace(demand, members=members, one_pool=task.service is None, spread=spread)


def deconstruct_graph(task: Task, project_id: ProjectId, now: float) -> GraphDemand:
    """Return the demand of a task with components that was parsed and is submitted at *now*."""
    owner = (JobId(""), project_id)
    return GraphDemand(
        parts=tuple(
            Part(part.name, _demand(task, (_over(task.resources, part.resources),), owner, now))
            for part in task.components
        ),
        ties=tuple(
            Tie(
                source=link.source,
                target=link.target,
                mbps=0.0 if link.bandwidth is None else amounts.bandwidth_mbps(link.bandwidth),
                max_latency_ms=None if link.latency is None else amounts.latency_ms(link.latency),
                same_node=link.same_node,
            )
            for link in task.links
        ),
        objective=task.objective,
    )


def _demand(
    task: Task, wishes: tuple[ResourceSpec, ...], owner: tuple[JobId, ProjectId], now: float
) -> Demand:
    return Demand(
        job_id=owner[0],
        project_id=owner[1],
        alternatives=tuple(
            _alternative(wish, several=bool(task.resources.any_of or task.resources.ordered))
            for wish in wishes
        ),
        priority=task.priority,
        ordered=bool(task.resources.ordered),
        tier=task.tier,
        policy=task.policy,
        weights=dict(task.weights),
        near=None if task.near is None else parse_place(task.near),
        levels=() if task.level is None else (task.level,),
        powers=_powers(task),
        **demanded(task, now),
    )


def _powers(task: Task) -> tuple[str, ...]:
    """Return what an engine must be able to do beyond the basics."""
    moves_files = task.workdir is not None or task.file_mounts or task.outputs
    apart = confinement(task)
    return (
        *(("images",) if task.image else ()),
        *(("files",) if moves_files else ()),
        *(("python",) if task.python is not None else ()),
        *(() if apart is None else apart.needs()),
    )


def confinement(task: Task) -> Confinement | None:
    """Return how far the task is kept apart; None where that is as usual."""
    apart = Confinement(
        network=task.network,
        egress=task.egress,
        privileged=task.privileged,
        runtime=task.runtime,
    )
    return None if apart == Confinement() else apart


def image_name(task: Task) -> str:
    """Return the image as engines know it; ``docker:`` says what it is, not what it is called."""
    return task.image.removeprefix("docker:")


def timeout_s(task: Task) -> float | None:
    """Return how long the task may run; None: as long as it takes."""
    return None if task.timeout is None else amounts.duration_s(task.timeout)


def grace_s(task: Task) -> float:
    """Return how long the task has to save its work when it is ended."""
    return DEFAULT_GRACE_S if task.grace is None else amounts.grace_s(task.grace)


def log_limit_bytes(task: Task) -> int:
    """Return how much room the task's output has on the pool."""
    return DEFAULT_LOG_BYTES if task.log_limit is None else amounts.log_limit_bytes(task.log_limit)


def mount_paths(task: Task) -> tuple[str, ...]:
    """Return where in the job's directory uploads belong: the workdir at ``.``, then each file mount."""
    workdir = () if task.workdir is None else (".",)
    return (*workdir, *(amounts.inner_path(target) for target in task.file_mounts))


def _over(common: ResourceSpec, choice: ResourceSpec) -> ResourceSpec:
    """Return what *choice* says, and what is common to all where it says nothing."""
    return ResourceSpec(
        cpus=common.cpus if choice.cpus is None else choice.cpus,
        memory=common.memory if choice.memory is None else choice.memory,
        disk_size=common.disk_size if choice.disk_size is None else choice.disk_size,
        accelerators=common.accelerators if choice.accelerators is None else choice.accelerators,
        pool=common.pool if choice.pool is None else choice.pool,
        infra=common.infra if choice.infra is None else choice.infra,
        where=choice.where or common.where,
        use_spot=common.use_spot if choice.use_spot is None else choice.use_spot,
    )


def _alternative(spec: ResourceSpec, *, several: bool) -> Alternative:
    infra, zone = _infra(spec.infra)
    taken_back = several and bool(spec.use_spot)
    return Alternative(
        Resources(
            cpu_millis=DEFAULT_CPU_MILLIS if spec.cpus is None else amounts.cpu_millis(spec.cpus),
            memory_mib=DEFAULT_MEMORY_MIB if spec.memory is None else amounts.memory_mib(spec.memory),
            disk_mib=0 if spec.disk_size is None else amounts.memory_mib(spec.disk_size),
            accelerators=() if spec.accelerators is None else amounts.accelerators(spec.accelerators),
        ),
        () if spec.pool is None else (spec.pool,),
        infra=infra,
        where=(*spec.where, *((f"zone={zone}",) if zone else ())),
        interruptible=taken_back,
        tolerations=TAKEN_BACK if taken_back else (),
    )


def _infra(text: str | None) -> tuple[str, str]:
    """Return where in a federation *text* allows, without its zone, and the zone; ``*`` allows everything."""
    parts = (text or "").split("/")
    zone = parts[2] if len(parts) > 2 and parts[2] != "*" else ""
    place = "/".join(parts[:2]).removesuffix("/*")
    return ("" if place == "*" else place), zone
