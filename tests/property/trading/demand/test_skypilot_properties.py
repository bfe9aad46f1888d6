"""What holds of every document that is read as SkyPilot's."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import JobId, ProjectId
from yunhe.trading.demand.deconstruct import deconstruct
from yunhe.trading.demand.parse import parse_task
from yunhe.trading.demand.skypilot.cases import CASES
from yunhe.trading.demand.skypilot.translate import translated

leaves = st.sampled_from(
    [None, True, False, 0, -3, 2.5, 10**12, "", "a", "4x", "4+", "A100:8", "docker:x/y", "s3://b", "/abs", "$A", "*", "aws/us/a"]
)  # fmt: skip
keys = st.sampled_from(["A100:1", "replicas", "workers", "url", "source", "mode", "strategy", "hook", "name"])
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=4,
)
fields = sorted({case.field.partition(".")[0] for case in CASES.values() if case.field.isidentifier()})
needs = sorted(
    {case.field.partition(".")[2] for case in CASES.values() if case.field.startswith("resources.")}
)
resources = st.dictionaries(st.sampled_from([*needs, "where", "pool", "bogus"]), values, max_size=4)
documents = st.fixed_dictionaries(
    {"run": st.just("true"), "resources": resources},
    optional={field: values for field in fields if field not in {"run", "resources"}},
)


@settings(max_examples=300, deadline=None)
@given(documents, st.lists(resources, max_size=2))
def test_any_document_is_read_or_refused_by_field(document: dict[str, Any], choices: list[Any]) -> None:
    if choices:
        document = {**document, "resources": {**document["resources"], "any_of": choices}}
    translation = translated(document)
    assert all(problem.field and problem.problem for problem in translation.problems)
    try:
        task = parse_task(translation.document, plan=True)
    except InvalidInputError as error:
        if not error.fields:
            raise
        return
    assert deconstruct(task, JobId("j"), ProjectId("p"), 0.0).alternatives
    again = parse_task(translated(translation.document).document, plan=True)
    assert again.planned_only.keys() >= task.planned_only.keys(), "what cannot run stays so"
