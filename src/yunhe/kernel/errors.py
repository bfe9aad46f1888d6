"""Errors raised on purpose: a stable code, the problem, the remedy, whether to retry."""

from typing import ClassVar

import msgspec

MOST_PROBLEMS = 50
"""So many problems of one input are told; nobody reads more, and looking for them takes time."""


class FieldProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing wrong with one field of what the user sent."""

    field: str
    problem: str
    value: str | None = None
    did_you_mean: str | None = None

    def __str__(self) -> str:
        text = f"{self.field}: {self.problem}"
        if self.value is not None:
            text += f" (got {self.value})"
        if self.did_you_mean is not None:
            text += f"; did you mean {self.did_you_mean!r}?"
        return text


class YunheError(Exception):
    """The root of every error we raise on purpose.

    ``code`` is public and never changes its meaning. ``status`` is what the API answers.
    ``retryable`` says whether the same call may succeed later, unchanged.
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, problem: str, *, remedy: str = "", fields: tuple[FieldProblem, ...] = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.fields = fields

    def __str__(self) -> str:
        return f"{self.problem} {self.remedy}".strip()


class InvalidInputError(YunheError):
    """What was sent cannot be accepted; every problem is listed at once."""

    code = "invalid-input"
    status = 400


class NotFoundError(YunheError):
    """The named thing does not exist, or the caller may not see it."""

    code = "not-found"
    status = 404


class GoneError(NotFoundError):
    """The named thing is so old that it has been removed."""

    code = "gone"
    status = 410


class UnauthenticatedError(YunheError):
    """No key, an unknown key or an expired one."""

    code = "unauthenticated"
    status = 401


class ForbiddenError(YunheError):
    """The caller is known, and may not do this."""

    code = "forbidden"
    status = 403


class ConflictError(YunheError):
    """The thing is not in a state that allows this, or exists already and differs."""

    code = "conflict"
    status = 409


class StalePlanError(ConflictError):
    """A saved plan does not hold any more; the fields say what has changed."""

    code = "stale-plan"


class TooLargeError(YunheError):
    """More bytes, rows or frames than the stated limit."""

    code = "too-large"
    status = 413


class TooManyRequestsError(YunheError):
    """The caller asks more often than it may; the same call succeeds later."""

    code = "rate-limited"
    status = 429
    retryable = True

    def __init__(
        self,
        problem: str,
        *,
        remedy: str = "",
        fields: tuple[FieldProblem, ...] = (),
        retry_after_s: float = 1.0,
    ) -> None:
        super().__init__(problem, remedy=remedy, fields=fields)
        self.retry_after_s = retry_after_s


class QuotaExceededError(YunheError):
    """A project would have more of something than it may; nothing was done."""

    code = "quota-exceeded"
    status = 429


class UnsupportedError(YunheError):
    """The pool's engine does not have this power; the problem says which and why."""

    code = "unsupported"
    status = 422


class PoolUnreachableError(YunheError):
    """The pool did not answer; whether the call was heard is not known."""

    code = "pool-unreachable"
    status = 503
    retryable = True


class PoolNotReachedError(PoolUnreachableError):
    """The pool could not be reached, and the call was not sent."""

    code = "pool-not-reached"


class LaunchUnansweredError(PoolUnreachableError):
    """A launch was sent and not answered, and its time to be claimed is over: it was claimed by now, or never will be."""

    code = "launch-unanswered"


class FencedError(YunheError):
    """Somebody with a newer fencing token commands this allocation now."""

    code = "fenced"
    status = 409


class DiskFullError(YunheError):
    """There is no room left where the data must be written."""

    code = "disk-full"
    status = 507
    retryable = True


class DatabaseUnavailableError(YunheError):
    """The database cannot be reached, or was lost during the call; whether it kept a write is not known then."""

    code = "database-unavailable"
    status = 503
    retryable = True


BY_CODE: dict[str, type[YunheError]] = {
    kind.code: kind
    for kind in (
        YunheError,
        InvalidInputError,
        NotFoundError,
        GoneError,
        UnauthenticatedError,
        ForbiddenError,
        ConflictError,
        StalePlanError,
        TooLargeError,
        TooManyRequestsError,
        QuotaExceededError,
        UnsupportedError,
        PoolUnreachableError,
        PoolNotReachedError,
        LaunchUnansweredError,
        FencedError,
        DiskFullError,
        DatabaseUnavailableError,
    )
}
