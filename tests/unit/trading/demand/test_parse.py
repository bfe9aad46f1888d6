"""A task is read whole or refused with everything that is wrong with it."""

import msgspec
import pytest

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.money import Tier
from yunhe.scheduling.decision.model import Policy
from yunhe.scheduling.decision.score.terms import TERMS
from yunhe.trading.demand.model import SCORE_TERMS, PythonSpec, ResourceSpec, Task
from yunhe.trading.demand.parse import parse_task, parse_yaml


def problems_of(document: object) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        parse_task(document)
    return {problem.field: str(problem) for problem in caught.value.fields}


def test_a_whole_task_is_read_as_written() -> None:
    task = parse_yaml("""
        name: train
        resources: {cpus: 4+, memory: 32+, accelerators: {A100: 2}}
        workdir: .
        envs: {EPOCHS: 3, RATE: 0.1, NAME: canal}
        secrets: [HF_TOKEN]
        file_mounts: {~/data: /srv/data}
        outputs: [results/*.json]
        setup: pip install -r requirements.txt
        run: python train.py
        retries: 2
        timeout: 2h
        near: cn-north@39.9,116.4
        tier: low
        policy: balanced
        weights: {cost_per_hour: 2}
    """)
    assert task == Task(
        name="train",
        resources=ResourceSpec(cpus="4+", memory="32+", accelerators={"A100": 2}),
        workdir=".",
        envs={"EPOCHS": "3", "RATE": "0.1", "NAME": "canal"},
        secrets=("HF_TOKEN",),
        file_mounts={"~/data": "/srv/data"},
        outputs=("results/*.json",),
        setup="pip install -r requirements.txt",
        run="python train.py",
        retries=2,
        timeout="2h",
        near="cn-north@39.9,116.4",
        tier=Tier.LOW,
        policy=Policy.BALANCED,
        weights={"cost_per_hour": 2.0},
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{version: "3.10"}', PythonSpec(version="3.10")),
        ("{requirements: [numpy==2.0, '# why']}", PythonSpec(requirements=("numpy==2.0", "# why"))),
        ("{version: '3.12.4', requirements: ./r.txt}", PythonSpec(version="3.12.4", requirements="r.txt")),
    ],
)
def test_a_python_environment_is_read_as_written(written: str, read: PythonSpec) -> None:
    task = parse_yaml(f"run: python x.py\nworkdir: .\npython: {written}\n")
    assert task.python == read
    assert parse_task(msgspec.json.decode(msgspec.json.encode(task))) == task


def test_every_problem_is_told_at_once() -> None:
    found = problems_of(
        {
            "nmae": "x",
            "name": "Train Me",
            "resources": {"cpus": "many", "memery": 4, "accelerators": "A100:1.5", "any_of": [{"gpus": 1}]},
            "envs": {"2X": "a", "DEBUG": True, "LATER": None},
            "file_mounts": {"/data": "here", "../up": "there", "s3": "s3://bucket"},
            "outputs": "results",
            "retries": -1,
            "timeout": "soon",
            "tier": "hihg",
            "policy": "cheap",
        }
    )
    assert set(found) == {
        "nmae",
        "name",
        "resources.cpus",
        "resources.memery",
        "resources.accelerators",
        "resources.any_of[0].gpus",
        "envs.2X",
        "envs.DEBUG",
        "envs.LATER",
        "file_mounts./data",
        "file_mounts.../up",
        "file_mounts.s3",
        "outputs",
        "retries",
        "timeout",
        "tier",
        "policy",
        "run",
    }
    assert "did you mean 'name'" in found["nmae"]
    assert "did you mean 'train-me'" in found["name"]
    assert "did you mean 'memory'" in found["resources.memery"]
    assert "did you mean 'accelerators'" in found["resources.any_of[0].gpus"]
    assert "did you mean 'data'" in found["file_mounts./data"]
    assert "did you mean 'high'" in found["tier"]
    assert "did you mean 'cheapest'" in found["policy"]
    assert "(got 'soon')" in found["timeout"]


@pytest.mark.parametrize(
    ("field", "document", "advice"),
    [
        ("budget", {"budget": "40/h"}, "timeout"),
        ("resources.image_id", {"resources": {"image_id": "docker:x"}}, "the task's image"),
        ("resources.cloud", {"resources": {"cloud": "aws"}}, "infra"),
        ("resources.any_of[0].region", {"resources": {"any_of": [{"region": "us"}]}}, "infra"),
        ("secrets", {"secrets": {"TOKEN": "abc"}}, "yunhe secret set"),
        ("file_mounts.data", {"file_mounts": {"data": {"source": "s3://b", "mode": "MOUNT"}}}, "local path"),
        ("workdir", {"workdir": {"url": "https://example.org/r.git"}}, "local path"),
        ("resources.accelerators", {"resources": {"accelerators": ["A100:1", "H100:1"]}}, "ordered"),
        ("resources.accelerators", {"resources": {"accelerators": {"A100": 1, "H100": 1}}}, "any_of"),
    ],
)
def test_what_is_planned_is_refused_with_what_to_do_instead(
    field: str, document: object, advice: str
) -> None:
    assert isinstance(document, dict)
    assert advice in problems_of({"run": "true", **document})[field]


def test_a_planned_field_that_asks_for_nothing_may_stay() -> None:
    assert parse_task({"run": "true", "num_nodes": 1, "resources": {"use_spot": False}}) == Task(run="true")


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"run": ""}, "run"),
        ({"run": None}, "run"),
        ({"run": 3}, "run"),
        ({"run": "x" * (256 * 1024 + 1)}, "run"),
        ({"run": "true", "setup": "a\0b"}, "setup"),
        ({"run": "true", "image": "-v/:/host"}, "image"),
        ({"run": "true", "image": "docker:--privileged"}, "image"),
        ({"run": "true", "image": "python 3.12"}, "image"),
        ({"run": "true", "image": "https://example.org/x"}, "image"),
        ({"run": "true", "image": "docker://x"}, "image"),
        ({"run": "true", "image": "docker:"}, "image"),
        ({"run": "true", "image": 3.12}, "image"),
        ({"run": "true", "image": "x" * 1001}, "image"),
        ({"run": "true", "runtime": "chroot"}, "runtime"),
        ({"run": "true", "runtime": "sandboxed", "image": "python:3.12"}, "runtime"),
        ({"run": "true", "python": {}}, "python"),
        ({"run": "true", "python": {"version": 3.10}}, "python.version"),
        ({"run": "true", "python": {"version": "three"}}, "python.version"),
        ({"run": "true", "python": {"version": "3.12; reboot"}}, "python.version"),
        ({"run": "true", "python": {"verison": "3.12"}}, "python.verison"),
        ({"run": "true", "python": {"requirements": "r.txt"}}, "python.requirements"),
        ({"run": "true", "workdir": ".", "python": {"requirements": "/r.txt"}}, "python.requirements"),
        ({"run": "true", "workdir": ".", "python": {"requirements": "../r.txt"}}, "python.requirements"),
        ({"run": "true", "python": {"requirements": ["a\nb"]}}, "python.requirements[0]"),
        ({"run": "true", "python": {"requirements": ["a", "-r b.txt"]}}, "python.requirements[1]"),
        ({"run": "true", "image": "a", "python": {"version": "3.12"}}, "python"),
        ({"run": "true", "runtime": "sandboxed", "privileged": True}, "runtime"),
        ({"run": "true", "name": "x" * 65}, "name"),
        ({"run": "true", "name": ["x"]}, "name"),
        ({"run": "true", "envs": {f"V{i}": "" for i in range(1001)}}, "envs"),
        ({"run": "true", "envs": ["A=1"]}, "envs"),
        ({"run": "true", "resources": {"cpus": 0}}, "resources.cpus"),
        ({"run": "true", "resources": {"cpus": True}}, "resources.cpus"),
        ({"run": "true", "resources": {"cpus": float("nan")}}, "resources.cpus"),
        ({"run": "true", "resources": {"cpus": "4++"}}, "resources.cpus"),
        ({"run": "true", "resources": {"cpus": 10**9}}, "resources.cpus"),
        ({"run": "true", "resources": {"memory": -1}}, "resources.memory"),
        ({"run": "true", "resources": {"memory": "4x"}}, "resources.memory"),
        ({"run": "true", "resources": {"accelerators": "A100:0"}}, "resources.accelerators"),
        ({"run": "true", "resources": {"accelerators": ":2"}}, "resources.accelerators"),
        ({"run": "true", "resources": {"any_of": []}}, "resources.any_of"),
        ({"run": "true", "resources": {"any_of": [{}], "ordered": [{}]}}, "resources"),
        ({"run": "true", "resources": {"any_of": [{"any_of": [{}]}]}}, "resources.any_of[0].any_of"),
        ({"run": "true", "resources": {"pool": "no such!"}}, "resources.pool"),
        ({"run": "true", "outputs": ["../x"]}, "outputs[0]"),
        ({"run": "true", "outputs": ["a/../../x"]}, "outputs[0]"),
        ({"run": "true", "outputs": ["a", "a"]}, "outputs"),
        ({"run": "true", "file_mounts": {"a": "x", "./a": "y"}}, "file_mounts../a"),
        ({"run": "true", "file_mounts": {"~root/a": "x"}}, "file_mounts.~root/a"),
        ({"run": "true", "timeout": 0}, "timeout"),
        ({"run": "true", "near": "x@100,0"}, "near"),
        ({"run": "true", "near": ""}, "near"),
        ({"run": "true", "retries": True}, "retries"),
        ({"run": "true", "policy": "nearest"}, "near"),
        ({"run": "true", "policy": "cheapest", "weights": {"cost_per_hour": 1}}, "weights"),
        ({"run": "true", "weights": {"cost": 1}}, "weights.cost"),
        ({"run": "true", "weights": dict.fromkeys(SCORE_TERMS, 0)}, "weights"),
        ({"run": "true", "secrets": ["A"], "envs": {"A": "1"}}, "secrets"),
        ({"run": "true", 3: "x"}, "task"),
        ("run", "task"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_field(document: object, field: str) -> None:
    assert list(problems_of(document)) == [field]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just words",
        "- a\n- b",
        "run: a\nrun: b",
        "run: a\n---\nrun: b",
        "run: [",
        "[" * 5000,
        "a: !!python/name:os",
    ],
)
def test_text_that_is_not_one_mapping_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_yaml(text)
    assert caught.value.remedy


def test_a_bomb_of_aliases_is_refused_in_little_text() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    with pytest.raises(InvalidInputError) as caught:
        parse_yaml("\n".join([*lines, "run: *a29"]))
    assert sum(len(str(problem)) for problem in caught.value.fields) < 10_000


def test_a_task_from_the_wire_is_judged_like_a_file() -> None:
    task = msgspec.convert({"run": "true", "resources": {"cpus": "lots"}}, Task)
    with pytest.raises(InvalidInputError):
        parse_task(msgspec.json.decode(msgspec.json.encode(task)))


def test_the_terms_that_can_be_weighed_are_those_decisions_use() -> None:
    assert set(SCORE_TERMS) == set(TERMS)


@pytest.mark.parametrize(
    ("said", "ports"),
    [
        (8888, (8888,)),
        ("8888", (8888,)),
        ([8888, "6006-6008"], (8888, 6006, 6007, 6008)),
        ([], ()),
        ("1-1024", tuple(range(1, 1025))),
    ],
)
def test_ports_are_numbers_ranges_and_lists_of_them(said: object, ports: tuple[int, ...]) -> None:
    assert parse_task({"run": "true", "ports": said}).ports == ports


@pytest.mark.parametrize(
    ("said", "field", "why"),
    [
        (0, "ports", "must be a port from 1 to 65535"),
        (65_536, "ports", "must be a port from 1 to 65535"),
        (True, "ports", "must be a port"),
        (80.5, "ports", "must be a port"),
        ("http", "ports", "a range such as 8080-8090"),
        ("8090-8080", "ports", "a range such as 8080-8090"),
        ([80, {"a": 1}], "ports[1]", "must be a port"),
        ([8080, "8079-8081"], "ports[1]", "names a port twice"),
        ("1-1025", "ports", "makes more than 1024 ports"),
    ],
)
def test_what_is_no_port_is_refused_where_it_stands(said: object, field: str, why: str) -> None:
    assert why in problems_of({"run": "true", "ports": said})[field]
