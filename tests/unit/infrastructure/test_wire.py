"""The contract's types and the published messages say the same, field by field."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.generate_contract import differing
from yunhe.infrastructure.contract.generated import engine_pb2 as pb
from yunhe.infrastructure.contract.kind import Check, Target
from yunhe.infrastructure.contract.manifest import FieldMapping, Manifest, PluginLimits
from yunhe.infrastructure.contract.model import (
    Account,
    Catalogue,
    Description,
    Ending,
    ExecRequest,
    Inventory,
    Isolation,
    LaunchOrder,
    LogChunk,
    Meters,
    Node,
    Observation,
    Observed,
    Phase,
    Quota,
    Region,
    Spec,
    Step,
    Upload,
    UsageMinute,
)
from yunhe.infrastructure.contract.wire import METHODS, problem_error, problem_message, to_message, to_struct
from yunhe.kernel.errors import BY_CODE, FieldProblem, YunheError
from yunhe.kernel.ids import AllocationId, NodeId
from yunhe.kernel.places import Level, Place
from yunhe.kernel.resources import Accelerators, Resources

PAIRS: dict[type[msgspec.Struct], type] = {
    Resources: pb.ResourceVector,
    **{
        struct: getattr(pb, struct.__name__)
        for struct in (
            Accelerators,
            Account,
            Catalogue,
            Check,
            Description,
            ExecRequest,
            FieldMapping,
            FieldProblem,
            Inventory,
            LaunchOrder,
            LogChunk,
            Manifest,
            Meters,
            Node,
            Observation,
            Observed,
            Place,
            PluginLimits,
            Quota,
            Region,
            Spec,
            Step,
            Target,
            Upload,
            UsageMinute,
        )
    },
}
numbers = st.integers(min_value=-(2**63), max_value=2**63 - 1)
amounts = st.integers(min_value=0, max_value=2**40)
texts = st.text(max_size=20)
moments = st.none() | st.floats(allow_nan=False, allow_infinity=False)
vectors = st.builds(
    Resources,
    cpu_millis=amounts,
    memory_mib=amounts,
    disk_mib=amounts,
    accelerators=st.lists(
        st.builds(Accelerators, kind=texts, milli=amounts, memory_mib=amounts), max_size=2
    ).map(tuple),
)
sightings = st.builds(
    Observed,
    allocation_id=texts.map(AllocationId),
    phase=st.sampled_from(Phase),
    token=numbers,
    node_id=st.none() | texts.map(NodeId),
    step=texts,
    exit_code=st.none() | st.integers(0, 255),
    ending=st.none() | st.sampled_from(Ending),
    started_at=moments,
    ended_at=moments,
    detail=texts,
    resources=st.none() | vectors,
    meters=st.builds(
        Meters, wall_ms=amounts, received_bytes=st.none() | amounts, sent_bytes=st.none() | amounts
    ),
    log_bytes=amounts,
)


def test_regenerating_the_published_contract_changes_nothing() -> None:
    assert differing() == []


@pytest.mark.parametrize("struct", PAIRS, ids=lambda struct: struct.__name__)
def test_a_type_and_its_message_have_the_same_fields(struct: type[msgspec.Struct]) -> None:
    assert set(struct.__struct_fields__) == {field.name for field in PAIRS[struct].DESCRIPTOR.fields}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(Phase, pb.Phase), (Ending, pb.Ending), (Isolation, pb.Isolation), (Level, pb.Level)],
    ids=lambda enum: getattr(enum, "__name__", "message"),
)
def test_every_value_has_a_word_on_the_wire_and_the_other_way_round(ours: type, theirs: object) -> None:
    values = getattr(theirs, "DESCRIPTOR").values  # noqa: B009 - not in the stubs
    words = {value.name.partition("_")[2].lower().replace("_", "-") for value in values}
    assert words - {"unspecified"} == {str(value) for value in ours}  # type: ignore[attr-defined]


@given(st.lists(sightings, max_size=3).map(tuple), numbers)
def test_what_an_engine_observes_arrives_as_it_was(seen: tuple[Observed, ...], version: int) -> None:
    observation = Observation(version=version, allocations=seen, notices=("a", "b"))
    sent = to_message(observation, pb.Observation).SerializeToString()
    assert to_struct(pb.Observation.FromString(sent), Observation) == observation


def test_what_is_unknown_stays_unknown_and_is_not_zero() -> None:
    place = Place("north", 0.0, None, None)
    sent = to_message(Region(name="r", place=place), pb.Region)
    assert sent.place.HasField("latitude")
    assert not sent.place.HasField("longitude")
    assert to_struct(sent, Region).place == place
    assert to_struct(pb.Region(name="r"), Region).place is None


@pytest.mark.parametrize("number", [0, 99], ids=["left out", "unheard of"])
def test_a_value_without_a_word_is_an_error_and_no_guess(number: int) -> None:
    message = pb.Observed(allocation_id="a", meters=pb.Meters())
    message.phase = number  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(YunheError, match="does not keep to the contract"):
        to_struct(message, Observed)


def test_a_field_the_message_lacks_is_not_dropped_in_silence() -> None:
    with pytest.raises(TypeError, match="LogChunk has no field name, script"):
        to_message(Step(name="a", script="b"), pb.LogChunk)


@pytest.mark.parametrize("code", BY_CODE)
def test_a_refusal_arrives_as_the_error_it_was(code: str) -> None:
    fields = (FieldProblem("cpus", "is not a number", "x", "4"), FieldProblem("name", "is empty"))
    sent = problem_message(BY_CODE[code]("It is so.", remedy="Do that.", fields=fields))
    error = problem_error(pb.Problem.FromString(sent.SerializeToString()))
    assert type(error) is BY_CODE[code]
    assert (error.problem, error.remedy, error.fields) == ("It is so.", "Do that.", fields)


def test_every_call_but_those_to_the_plugin_itself_names_its_target() -> None:
    for name, method in METHODS.items():
        fields = {field.name for field in method.request.DESCRIPTOR.fields}
        # The first message of a stream names it.
        of_streams = {f"Resources/{one}" for one in ("PutArchive", "Exec", "Forward")}
        assert "target" in fields or name in {"Plugin/Describe", *of_streams}
    assert "target" in pb.Announcement.DESCRIPTOR.fields_by_name
    assert "target" in pb.ExecStart.DESCRIPTOR.fields_by_name
