"""What an API server says when it does not do as asked, as errors of ours."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from yunhe.kernel.errors import (
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    PoolUnreachableError,
    TooLargeError,
    UnauthenticatedError,
    UnsupportedError,
    YunheError,
)

DEFAULT_RETRY_AFTER_S = 1.0
SHOWN_BYTES = 60

T = TypeVar("T")


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """What a Status says beyond its message."""

    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The API's own form of an error."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class AlreadyThereError(ConflictError):
    """An object of this name exists."""


class ChangedMeanwhileError(ConflictError):
    """The object is not at the version that was read, or another manager owns the field."""


class ExpiredError(YunheError):
    """The resource version or the continue token is too old; only a new list helps."""

    retryable = True


class NotKubernetesError(PoolUnreachableError):
    """Something answers, but not in the form of a Kubernetes API."""


class OverloadedError(PoolUnreachableError):
    """The server asks to be left alone for a while; it has done nothing of what was asked."""

    def __init__(self, problem: str, retry_after_s: float) -> None:
        super().__init__(problem, remedy="It is tried again when the server says so.")
        self.retry_after_s = retry_after_s


def decode(body: bytes | str, shape: type[T]) -> T:
    """Return what a cluster sent as *shape*.

    A proxy's page for logging in comes with status 200 as well: what cannot be read is a cluster out of reach, never
    a fault of ours.
    """
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unreadable(body, error) from None


def unreadable(body: bytes | str, error: Exception) -> NotKubernetesError:
    """Return the error for an answer that is not in the API's form, with how it begins."""
    text = body if isinstance(body, str) else body[: 4 * SHOWN_BYTES].decode(errors="replace")
    begins = " ".join(text.split())[:SHOWN_BYTES]
    return NotKubernetesError(
        f"What answers is no Kubernetes API: {error}; it begins {begins!r}.",
        remedy="Look for a proxy or a login page between here and the API server.",
    )


def read_status(body: bytes, code: int) -> Status:
    """Return the Status in *body*; whatever else it is becomes the message."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Status(code=code, message=body[:300].decode(errors="replace"))
    return status if status.code else msgspec.structs.replace(status, code=code)


def error_of(status: Status, where: str, headers: Mapping[str, str] | None = None) -> YunheError:
    """Return the error that *status* stands for; a code without a meaning here is named, not guessed at."""
    problem = f"{where}: {status.message or status.reason or 'no message'} ({status.code})"
    match status.code:
        case 401:
            return UnauthenticatedError(problem, remedy="Renew the credentials of the kubeconfig.")
        case 403:
            return ForbiddenError(problem, remedy="Apply the role that yunhe pool check prints.")
        case 404:
            return NotFoundError(problem)
        case 409 if status.reason == "AlreadyExists":
            return AlreadyThereError(problem)
        case 409:
            return ChangedMeanwhileError(problem)
        case 410:
            return ExpiredError(problem)
        case 413:
            return TooLargeError(problem)
        case 400 | 422:
            return InvalidInputError(problem)
        case 405 | 406 | 415:
            return UnsupportedError(problem)
        case 429:
            return OverloadedError(problem, _retry_after_s(status, headers or {}))
        case code if code >= 500:
            return PoolUnreachableError(problem)
        case _:
            return YunheError(problem)


def _retry_after_s(status: Status, headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "")
    if text.isdigit():
        return float(text)
    if status.details is not None and status.details.retry_after_seconds:
        return float(status.details.retry_after_seconds)
    return DEFAULT_RETRY_AFTER_S
