"""A task becomes a demand in exact numbers."""

import pytest

from yunhe.kernel.ids import JobId, ProjectId
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.model import Alternative, Demand, Policy
from yunhe.trading.demand.deconstruct import deconstruct, mount_paths, timeout_s
from yunhe.trading.demand.model import ResourceSpec, Task

JOB, PROJECT = JobId("job_1"), ProjectId("default")
NOW = 1_000_000.0


def alternatives_of(spec: ResourceSpec) -> tuple[Alternative, ...]:
    return deconstruct(Task(run="true", resources=spec), JOB, PROJECT, NOW).alternatives


def test_a_task_that_says_nothing_gets_one_core_and_one_gib() -> None:
    assert deconstruct(Task(run="true"), JOB, PROJECT, NOW) == Demand(
        job_id=JOB,
        project_id=PROJECT,
        alternatives=(Alternative(Resources(cpu_millis=1000, memory_mib=1024)),),
    )


def test_amounts_are_exact() -> None:
    spec = ResourceSpec(cpus="500m", memory="1.5GB", disk_size=50, accelerators="A100:0.5", pool="lab")
    assert alternatives_of(spec) == (
        Alternative(Resources(500, 1536, 51200, (Accelerators("A100", 500),)), ("lab",)),
    )


def test_an_alternative_says_only_how_it_differs() -> None:
    spec = ResourceSpec(
        memory=8, any_of=(ResourceSpec(accelerators="A100"), ResourceSpec(cpus="16+", memory=64))
    )
    assert alternatives_of(spec) == (
        Alternative(Resources(1000, 8192, 0, (Accelerators("A100", 1000),))),
        Alternative(Resources(16000, 65536)),
    )


def test_only_ordered_alternatives_keep_their_order() -> None:
    choices = (ResourceSpec(cpus=1), ResourceSpec(cpus=2))
    ordered = Task(run="true", resources=ResourceSpec(ordered=choices))
    any_of = Task(run="true", resources=ResourceSpec(any_of=choices))
    assert deconstruct(ordered, JOB, PROJECT, NOW).ordered
    assert not deconstruct(any_of, JOB, PROJECT, NOW).ordered


def test_near_policy_and_time_come_along() -> None:
    task = Task(run="true", near="cn-north@39.9,116.4", policy=Policy.NEAREST, timeout="2h")
    demand = deconstruct(task, JOB, PROJECT, NOW)
    assert demand.near == Place("cn-north", 39.9, 116.4)
    assert demand.policy is Policy.NEAREST
    assert timeout_s(task) == 7200.0


def test_mounts_lie_inside_the_job_directory() -> None:
    task = Task(run="true", workdir="/srv/app", file_mounts={"~/data/": "a", "./x/../y": "b"})
    assert mount_paths(task) == (".", "data", "y")


@pytest.mark.parametrize(
    ("task", "powers"),
    [
        (Task(run="true"), ()),
        (Task(run="true", image="alpine"), ("images",)),
        (Task(run="true", workdir="."), ("files",)),
        (Task(run="true", file_mounts={"data": "./data"}), ("files",)),
        (Task(run="true", image="alpine", outputs=("out.txt",)), ("images", "files")),
    ],
)
def test_what_the_engine_must_be_able_to_do_comes_along(task: Task, powers: tuple[str, ...]) -> None:
    assert deconstruct(task, JOB, PROJECT, NOW).powers == powers
