"""The contract's types as the messages of ``engine.proto``, field by field and by name.

A field that only one side has, or a value the other side has no word for, is an error: nothing is dropped in silence.
"""

from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from yunhe.infrastructure.contract.generated import engine_pb2
from yunhe.kernel.errors import BY_CODE, FieldProblem, YunheError

PROBLEM_TRAILER = "yunhe-problem-bin"
AUTHORIZATION = "authorization"
MESSAGE_BYTES = 64 * 1024 * 1024
"""The largest message either side accepts."""
PIECE_BYTES = 64 * 1024
"""How much of an archive or of input travels in one message."""

Field = Any
"""A field's descriptor; the protobuf library has two unrelated types for it."""
S = TypeVar("S", bound=msgspec.Struct)
M = TypeVar("M", bound=Message)


class Method(NamedTuple):
    """One call of the contract."""

    path: str
    """``/yunhe.engine.v1.Resources/Launch`` …"""
    request: type[Message]
    response: type[Message]


def _methods() -> dict[str, Method]:
    return {
        f"{service.name}/{method.name}": Method(
            f"/{service.full_name}/{method.name}",
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
        )
        for service in engine_pb2.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


METHODS = _methods()
"""Every call, by service and name: ``Resources/Launch`` …"""


def to_message(value: msgspec.Struct, message: type[M]) -> M:
    """Return *value* as a *message*."""
    plain = cast("dict[str, Any]", msgspec.to_builtins(value, builtin_types=(bytes,)))
    return _filled(message, plain)


def to_struct(message: Message, struct: type[S]) -> S:
    """Return *message* as a *struct*."""
    try:
        return msgspec.convert(_plain(message), struct)
    except msgspec.ValidationError as error:
        raise YunheError(
            f"A {struct.__name__} came over the wire that does not keep to the contract: {error}.",
            remedy="Hold the plugin to the conformance kit; its maker must fix it.",
        ) from None


def problem_message(error: YunheError) -> engine_pb2.Problem:
    """Return a refusal as it travels."""
    return engine_pb2.Problem(
        code=error.code,
        problem=error.problem,
        remedy=error.remedy,
        fields=[to_message(field, engine_pb2.FieldProblem) for field in error.fields],
    )


def problem_error(problem: engine_pb2.Problem) -> YunheError:
    """Return a refusal that has travelled as the error it was; one with a new code is only an error."""
    kind = BY_CODE.get(problem.code, YunheError)
    fields = tuple(to_struct(field, FieldProblem) for field in problem.fields)
    return kind(problem.problem, remedy=problem.remedy, fields=fields)


def _filled(message: type[M], plain: dict[str, Any]) -> M:
    known = message.DESCRIPTOR.fields_by_name
    unknown = sorted(set(plain) - set(known))
    if unknown:
        raise TypeError(f"{message.DESCRIPTOR.name} has no field {', '.join(unknown)}")
    return message(**{name: _sent(known[name], value) for name, value in plain.items() if value is not None})


def _sent(field: Field, value: Any) -> Any:
    if _is_map(field):
        return value
    if field.is_repeated:
        return [_sent_one(field, item) for item in value]
    return _sent_one(field, value)


def _sent_one(field: Field, value: Any) -> Any:
    if field.enum_type is not None:
        return f"{_prefix(field.enum_type)}{value}".upper().replace("-", "_")
    if field.message_type is not None:
        return _filled(GetMessageClass(field.message_type), value)
    return value


def _plain(message: Message) -> dict[str, Any]:
    """Return the fields of *message*, without those that are absent where absence has a meaning."""
    return {
        field.name: _received(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _received(field: Field, value: Any) -> Any:
    if _is_map(field):
        return dict(value)
    if field.is_repeated:
        return [_received_one(field, item) for item in value]
    return _received_one(field, value)


def _received_one(field: Field, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        name = known.name.removeprefix(_prefix(field.enum_type)) if known else str(value)
        return name.lower().replace("_", "-")
    return _plain(value) if field.message_type is not None else value


def _is_map(field: Field) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _prefix(enum: Any) -> str:
    return f"{enum.name.upper()}_"
