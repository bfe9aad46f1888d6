"""Everything that is wrong with an input is told at once, in the words of the field."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.validation import read, read_json
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task


def problems_of(body: object, kind: type[object] = Submission) -> dict[str, FieldProblem]:
    with pytest.raises(InvalidInputError) as caught:
        read_json(msgspec.json.encode(body), kind)
    return {problem.field: problem for problem in caught.value.fields}


def test_every_wrong_field_is_told_at_once() -> None:
    found = problems_of(
        {
            "task": {"rum": "x", "resources": {"cpu": 1, "any_of": 3}, "tier": "lo", "retries": "3"},
            "projct_id": "a",
        }
    )
    assert set(found) == {
        "task.rum",
        "task.run",
        "task.resources.cpu",
        "task.resources.any_of",
        "task.tier",
        "task.retries",
        "projct_id",
    }
    assert found["task.rum"].did_you_mean == "run"
    assert found["task.resources.cpu"].did_you_mean == "cpus"
    assert found["task.tier"].did_you_mean == "low"
    assert found["projct_id"].did_you_mean == "project_id"
    assert found["task.retries"].value == '"3"'
    assert found["task.run"].problem == "is missing"


def test_a_path_leads_into_lists_and_mappings() -> None:
    found = problems_of(
        {"task": {"run": "x", "resources": {"any_of": [{"cpus": 1}, {"cpus": [1]}]}, "envs": {"A": 1}}}
    )
    assert set(found) == {"task.resources.any_of[1].cpus", "task.envs.A"}


def test_true_is_not_a_number() -> None:
    assert set(problems_of({"task": {"run": "x", "retries": True}})) == {"task.retries"}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"{} {}", b"[" * 100_000])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInputError, match="not JSON"):
        read_json(body, Submission)


def test_a_nul_is_refused_and_a_backslash_before_u0000_is_not() -> None:
    assert set(problems_of({"task": {"run": "a\0b", "envs": {"A\0": "x"}}})) == {"task.run", "task.envs"}
    backslash = {"task": {"run": "\\u0000"}}
    assert read_json(msgspec.json.encode(backslash), Submission).task.run == "\\u0000"


def test_a_long_value_is_shown_short() -> None:
    value = problems_of({"task": ["x" * 1000]})["task"].value
    assert value is not None
    assert len(value) == 60


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["run", "resources", "envs", "tier", "cpus", "any_of", "x", "outputs", "retries"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_it_accepts_exactly_what_msgspec_accepts(value: object) -> None:
    try:
        expected = msgspec.convert(value, Task)
    except msgspec.ValidationError:
        with pytest.raises(InvalidInputError) as caught:
            read(value, Task)
        assert caught.value.fields
        assert all(problem.field != "(whole)" for problem in caught.value.fields) or not isinstance(
            value, dict
        )
    else:
        assert read(value, Task) == expected
