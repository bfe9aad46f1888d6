"""SkyPilot's task files are read as they are; each field of them is honoured, has a meaning that is said, or is refused once."""

from pathlib import Path
from typing import Any

import pytest
from lab.skypilot_files.__main__ import unsaid

from yunhe.entrypoints.cli.session.task_files import GivenTask, Overrides, tasks_from
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import JobId, ProjectId
from yunhe.scheduling.decision.model import Demand
from yunhe.trading.demand.deconstruct import deconstruct
from yunhe.trading.demand.parse import parse_task, read_documents
from yunhe.trading.demand.skypilot.cases import CASES, Effect
from yunhe.trading.demand.skypilot.translate import translated

FILES = sorted((Path(__file__).parent / "skypilot_files").glob("*.yaml"))


def given(path: Path, **options: Any) -> list[GivenTask]:
    return tasks_from([str(path)], [], Overrides(**options), plan=True, sent=False)


def demand_of(document: dict[str, Any]) -> Demand:
    translation = translated({"run": "true", **document})
    assert not translation.problems
    return deconstruct(parse_task(translation.document, plan=True), JobId("j"), ProjectId("p"), 0.0)


def problems_of(document: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in translated({"run": "true", **document}).problems]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_field_of_a_file_has_a_meaning_that_is_said(path: Path) -> None:
    documents = read_documents(path.read_bytes())
    assert unsaid(documents, given(path)) == ()


def test_the_files_reach_every_row_of_the_table() -> None:
    reached = {note.case for path in FILES for one in given(path) for note in one.notes}
    refused = {name for name, case in CASES.items() if case.effect is Effect.REFUSED}
    assert set(CASES) - reached - refused == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_run_refuses_what_is_only_planned_once_for_each_field(path: Path) -> None:
    planned = {
        note.field.split(".")[0] if note.field.startswith(("service.", "pool")) else note.field
        for one in given(path)
        for note in one.notes
        if note.effect is Effect.PLANNED and note.case != "documents.header"
    }
    if not planned:
        return
    with pytest.raises(InvalidInputError) as refused:
        tasks_from([str(path)], [], Overrides())
    fields = [problem.field for problem in refused.value.fields]
    assert len(fields) == len(set(fields))
    assert {"pool" if field == "service" and "pool" in planned else field for field in fields} >= {
        field for field in planned if field != "workdir" and not field.startswith("file_mounts.data")
    }
    assert all(": " in str(problem) for problem in refused.value.fields)


def test_where_it_may_run_comes_along_for_each_alternative() -> None:
    demand = demand_of(
        {
            "resources": {
                "any_of": [
                    {"infra": "aws/us-east-1/us-east-1a", "use_spot": True},
                    {"cloud": "gcp", "use_spot": False},
                    {"infra": "k8s/lab", "instance_type": "g5"},
                    {"infra": "*/*/b"},
                ]
            }
        }
    )
    assert [one.infra for one in demand.alternatives] == ["aws/us-east-1", "gcp", "k8s/lab", ""]
    assert [one.where for one in demand.alternatives] == [
        ("zone=us-east-1a",),
        (),
        ("instance_type=g5",),
        ("zone=b",),
    ]
    assert [one.interruptible for one in demand.alternatives] == [True, False, False, False]
    assert not demand.interruptible


@pytest.mark.parametrize(
    ("accelerators", "kinds", "ordered"),
    [
        ("a100:8", ["A100"], False),
        ({"A100": 8}, ["A100"], False),
        ({"A100:8": None}, ["A100"], False),
        ({"A10g:8": None, "L4:8": None}, ["A10G", "L4"], False),
        ({"A10G": 8, "L4": 8}, ["A10G", "L4"], False),
        (["A100:8", "H100:8"], ["A100", "H100"], True),
        ("{A100:8, 'H100:8'}", ["A100", "H100"], False),
    ],
)
def test_every_form_of_accelerators_is_read(accelerators: object, kinds: list[str], ordered: bool) -> None:
    demand = demand_of({"resources": {"accelerators": accelerators}})
    found = [one.resources.accelerators[0] for one in demand.alternatives]
    assert [one.kind for one in found] == kinds
    assert {one.milli for one in found} == {8000}
    assert demand.ordered is ordered


def test_a_set_of_accelerators_goes_with_every_alternative() -> None:
    resources = {
        "accelerators": {"A100:1": None, "L4:1": None},
        "any_of": [{"use_spot": True}, {"infra": "gcp"}],
    }
    demand = demand_of({"resources": resources})
    seen = {(one.resources.accelerators[0].kind, one.infra, one.interruptible) for one in demand.alternatives}
    assert seen == {(kind, *rest) for kind in ("A100", "L4") for rest in (("", True), ("gcp", False))}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"resources": {"local_disk": "nvme:500+"}}, "disk_size"),
        ({"resources": {"priority_class": "high"}}, "priority"),
        ({"resources": {"priority": 5000}}, "-1000 to 1000"),
        ({"resources": {"ports": "http"}}, "8080-8090"),
        ({"resources": {"disk_tier": "fast"}}, "best"),
        ({"resources": {"network_tier": "gold"}}, "standard or best"),
        ({"resources": {"job_recovery": "sometimes"}}, "failover"),
        ({"resources": {"autostop": "soon"}}, "10m"),
        ({"resources": {"infra": "aws", "cloud": "gcp"}}, "keep one"),
        ({"resources": {"infra": ["aws"]}}, "must be text"),
        ({"resources": {"region": "a b"}}, "must be a name"),
        ({"resources": "A100"}, "must be a mapping"),
        ({"service": {"replica": 2}}, "is not a field of service"),
        ({"file_mounts": {"/a": {"name": "b", "mode": "LINK"}}}, "MOUNT, COPY"),
        ({"workdir": {"ref": "main"}}, "address of a repository"),
        ({"config": "x"}, "must be a mapping"),
    ],
)
def test_a_bad_value_is_refused_in_one_sentence(document: dict[str, Any], said: str) -> None:
    (problem,) = problems_of(document)
    assert said in problem


def test_options_take_the_place_of_fields(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(
        "envs: {BUCKET: }\nsecrets: {TOKEN: abc}\nresources: {image_id: ami-1, infra: aws}\nrun: 'true'\n"
    )
    ((task, _),) = tasks_from(
        [str(path)], [], Overrides(envs=["BUCKET=b"], secrets=["TOKEN"], image="python:3.12", infra="*")
    )
    assert (task.envs, task.secrets, task.image, task.resources.infra) == (
        {"BUCKET": "b"}, ("TOKEN",), "python:3.12", "*",
    )  # fmt: skip


def test_a_value_of_a_secret_never_comes_along(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("secrets: {TOKEN: hunter2}\nrun: 'true'\n")
    ((task, notes),) = given(path)
    assert "hunter2" not in repr(task) + repr(notes)


def test_variables_are_filled_in_where_skypilot_does(tmp_path: Path) -> None:
    (tmp_path / "13b").mkdir()
    path = tmp_path / "t.yaml"
    path.write_text(
        f"envs: {{SIZE: 13b}}\nfile_mounts: {{'data/${{SIZE}}': '{tmp_path}/$SIZE'}}\nrun: echo $SIZE\n"
    )
    ((task, _),) = tasks_from([str(path)], [], Overrides())
    assert task.file_mounts == {"data/13b": f"{tmp_path}/13b"}
    assert task.run == "echo $SIZE"


def test_a_count_of_accelerators_needs_a_kind(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("run: 'true'\n")
    with pytest.raises(InvalidInputError) as refused:
        tasks_from([str(path)], [], Overrides(gpus="1"))
    assert [str(problem) for problem in refused.value.fields] == [
        "--gpus: says how many and not of which kind, and the file names no one kind (got 1); did you mean 'A100:1'?"
    ]


@pytest.mark.parametrize(
    ("said", "ports", "case"),
    [
        (8080, (8080,), "resources.ports"),
        ("8080-8082", (8080, 8081, 8082), "resources.ports"),
        ([8888, "8080", "8080-8081"], (8080, 8081, 8888), "resources.ports"),
        ("30000-32767", (), "resources.ports.many"),
    ],
)
def test_ports_are_those_that_forward_connects_to(said: object, ports: tuple[int, ...], case: str) -> None:
    translation = translated({"run": "true", "resources": {"ports": said}})
    assert parse_task(translation.document).ports == ports
    assert CASES[case].effect is Effect.MEANING
    assert CASES[case].says in [note.says for note in translation.notes if note.field == "resources.ports"]
