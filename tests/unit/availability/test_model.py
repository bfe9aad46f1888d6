import math

import pytest

from yunhe.availability.model import (
    Assumptions,
    Model,
    Module,
    SharedDependency,
    SubModule,
    Zone,
    find_circle,
    uniform_model,
)
from yunhe.availability.model_file import parse_model
from yunhe.kernel.errors import InvalidInputError

GOOD = """
availability: 99%
replicas: 4
target: 99.95
modules:
  trade: [market, applications]
  decision: {orchestration: 0.995, traffic: , data: 98%}
  workers: 3
shared:
  database: {availability: 0.999, instances: 2, needs: [disk]}
  disk: 0.9999
zones: {bj: 0.9995, tj: 99.9%}
common_cause: 5%
failover: 0.99
switchover: 20s
repair: 30m
"""


def problems(text: str) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as refused:
        parse_model(text)
    assert refused.value.remedy
    return {problem.field: str(problem) for problem in refused.value.fields}


def test_a_model_file_says_everything_a_model_has():
    model, target = parse_model(GOOD)
    assert target == pytest.approx(0.9995)
    assert model.replicas == 4
    assert [module.name for module in model.modules] == ["trade", "decision", "workers"]
    assert [sub.availability for sub in model.modules[1].submodules] == pytest.approx([0.995, 0.99, 0.98])
    assert [sub.name for sub in model.modules[2].submodules] == ["workers-1", "workers-2", "workers-3"]
    assert model.shared == (
        SharedDependency("database", 0.999, 2, ("disk",)),
        SharedDependency("disk", 0.9999),
    )
    assert model.assumptions == Assumptions(
        0.05, 0.99, 20.0, 1800.0, (Zone("bj", 0.9995), Zone("tj", 99.9 / 100))
    )
    assert model.submodule_count == 8


def test_a_short_file_takes_the_paper_s_assumptions():
    model, target = parse_model("{availability: 0.9, modules: {web: [a, b]}}")
    assert (model.replicas, model.shared, model.assumptions, target) == (3, (), Assumptions(), None)


def test_every_problem_of_a_file_is_named_at_once_with_what_was_meant():
    found = problems(
        "{availabilty: 0.9, modules: {a: {x: many}, b: 0.5, c: 0}, shared: {db: {availability: 0.9, instance: 2}},"
        " switchover: soon, replicas: 2.5, target: 7, zones: [1]}"
    )
    assert set(found) == {
        "availabilty", "modules.a.x", "modules.b", "modules.c", "shared.db.instance", "switchover", "replicas",
        "target", "zones",
    }  # fmt: skip
    assert "did you mean 'availability'" in found["availabilty"]
    assert "did you mean 'instances'" in found["shared.db.instance"]
    assert "'many'" in found["modules.a.x"]


@pytest.mark.parametrize("value", ["1", "1.5", "0", "-0.2", "99", ".nan", ".inf"])
def test_an_availability_outside_0_to_1_is_refused_wherever_it_stands(value: str):
    assert "modules.a.x" in problems(f"modules: {{a: {{x: {value}}}}}")
    assert "availability" in problems(f"{{availability: {value}, modules: {{a: 2}}}}")
    assert "shared.db.availability" in problems(
        f"{{availability: 0.9, modules: {{a: 2}}, shared: {{db: {value}}}}}"
    )
    assert "zones.z" in problems(f"{{availability: 0.9, modules: {{a: 2}}, zones: {{z: {value}}}}}")


def test_an_availability_in_percent_without_the_sign_is_recognised():
    assert "did you mean '99%'" in problems("modules: {a: {x: 99}}")["modules.a.x"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{availability: 0.9, modules: {a: 2}, replicas: 0}", "replicas"),
        ("{availability: 0.9, modules: {a: 2}, replicas: 65}", "replicas"),
        (
            "{availability: 0.9, modules: {a: 2}, shared: {db: {availability: 0.9, instances: 0}}}",
            "shared.db.instances",
        ),
        ("{availability: 0.9, modules: {a: []}}", "modules.a"),
        ("{availability: 0.9, modules: {a: [x, x]}}", "modules.a"),
        ("{availability: 0.9, modules: {}}", "modules"),
        ("{availability: 0.9}", "modules"),
        ("{modules: {a: [x]}}", "modules.a"),
        ("{availability: 0.9, modules: {a: 2}, failover: 1.1}", "failover"),
        ("{availability: 0.9, modules: {a: 2}, common_cause: -0.1}", "common_cause"),
        ("{availability: 0.9, modules: {a: 2}, repair: 0}", "repair"),
        ("{availability: 0.9, modules: {a: 2}, shared: {db: {instances: 2}}}", "shared.db.availability"),
        (
            "{availability: 0.9, modules: {a: 2}, shared: {db: {availability: 0.9, needs: 3}}}",
            "shared.db.needs",
        ),
        ("{availability: 0.9, modules: {a: true}}", "modules.a"),
        ("{availability: 0.9, modules: {a: 99999999}}", "modules.a"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_name_of_its_field(text: str, field: str):
    assert set(problems(text)) == {field}


def test_a_circle_of_shared_dependencies_is_refused_and_drawn():
    found = problems(
        "{availability: 0.9, modules: {a: 1}, shared: {db: {availability: 0.9, needs: [disk]},"
        " disk: {availability: 0.9, needs: [power]}, power: {availability: 0.9, needs: db}}}"
    )
    assert "db → disk → power → db" in found["shared.db.needs"]
    assert (
        "db → db"
        in problems("{availability: 0.9, modules: {a: 1}, shared: {db: {availability: 0.9, needs: [db]}}}")[
            "shared.db.needs"
        ]
    )


def test_a_need_of_something_unknown_is_refused_with_what_was_meant():
    found = problems(
        "{availability: 0.9, modules: {a: 1}, shared: {db: {availability: 0.9, needs: [dsk]}, disk: 0.9}}"
    )
    assert "did you mean 'disk'" in found["shared.db.needs"]


@pytest.mark.parametrize("text", ["", "- a\n- b", "just words", "modules: [a, b", "a: 1\na: 2", "\t- x"])
def test_what_is_no_model_at_all_is_refused_with_a_hint(text: str):
    with pytest.raises(InvalidInputError) as refused:
        parse_model(text)
    assert refused.value.remedy


def test_a_key_given_twice_is_refused_and_its_line_named():
    with pytest.raises(InvalidInputError, match=r"line 3.*'modules' is given twice"):
        parse_model("modules: {a: 1}\navailability: 0.9\nmodules: {b: 1}\n")


def test_a_file_of_two_models_is_refused():
    with pytest.raises(InvalidInputError, match="must be one mapping"):
        parse_model("modules: {a: [x]}\navailability: 0.9\n---\nmodules: {b: [y]}\n")


def test_a_model_built_in_code_is_checked_just_the_same():
    with pytest.raises(InvalidInputError) as refused:
        Model(
            (Module("a", (SubModule("x", 1.0), SubModule("x", 0.5))), Module("a", ())),
            (SharedDependency("db", 0.0, 0),),
            0,
            Assumptions(zones=tuple(Zone(f"z{number}", 0.9) for number in range(9)), switchover_s=math.nan),
        )
    fields = {problem.field for problem in refused.value.fields}
    assert fields == {
        "modules", "modules.a", "modules.a.x", "shared.db.availability", "shared.db.instances", "replicas", "zones",
        "switchover",
    }  # fmt: skip


def test_no_circle_is_found_where_two_paths_merely_meet():
    assert find_circle({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}) == ()
    assert find_circle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ("b", "c", "b")
    assert find_circle({}) == ()


def test_a_uniform_model_has_the_modules_it_is_given():
    model = uniform_model({"a": ["x", "y"], "b": ["z"]}, 0.9, 2)
    assert [len(module.submodules) for module in model.modules] == [2, 1]
    assert model.replicas == 2


def test_what_is_wrong_with_the_values_is_told_with_what_is_wrong_with_the_form() -> None:
    text = (
        "{availability: 2, modules: {web: [a, a], x: {b: abc}}, shared: {database: 7}, replicas: 0, bogus: 3}"
    )
    with pytest.raises(InvalidInputError) as refused:
        parse_model(text)
    assert [problem.field for problem in refused.value.fields] == [
        "bogus",
        "availability",
        "modules.web",
        "modules.x.b",
        "shared.database.availability",
        "replicas",
    ]
