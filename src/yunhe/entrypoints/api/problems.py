"""Every error as RFC 9457 problem+json, whoever raised it."""

import errno
import logging
import math
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from yunhe.entrypoints.api.request_ids import request_id_of
from yunhe.entrypoints.wire import Problem
from yunhe.kernel.errors import (
    ConflictError,
    DiskFullError,
    FieldProblem,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    TooLargeError,
    TooManyRequestsError,
    UnauthenticatedError,
    YunheError,
)
from yunhe.kernel.validation import brief_text, most

logger = logging.getLogger(__name__)

PROBLEM_JSON = "application/problem+json"
MOST_OF_A_DETAIL = 2_000
"""Characters."""
MOST_OF_A_REMEDY = 8_000
"""Characters; a remedy may be a manifest to apply."""


def problem_of(error: YunheError, request_id: str = "", status: int | None = None) -> Problem:
    """Return *error* as it is told to the caller."""
    return Problem(
        type=f"urn:yunhe:problem:{error.code}",
        title=error.code.replace("-", " ").capitalize(),
        status=status or error.status,
        code=error.code,
        detail=brief_text(error.problem, MOST_OF_A_DETAIL),
        remedy=brief_text(error.remedy, MOST_OF_A_REMEDY),
        fields=most(error.fields),
        retryable=error.retryable,
        request_id=request_id,
    )


def answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the answer to a request that raised *error*."""
    status = error.status_code if isinstance(error, HTTPException) else None
    known = as_yunhe_error(error)
    problem = problem_of(known, request_id_of(request.scope), status)
    if problem.status >= 500 and not known.retryable:
        logger.error("request failed", exc_info=error)
    return Response(
        msgspec.json.encode(problem),
        media_type=PROBLEM_JSON,
        status_code=problem.status,
        headers=_headers(problem, error),
    )


def as_yunhe_error(error: BaseException) -> YunheError:
    """Return *error* in our own words; what nobody expected becomes ``internal`` and shows nothing of the inside."""
    if isinstance(error, YunheError):
        return error
    if isinstance(error, ValidationException):
        return _invalid_parameters(error)
    if isinstance(error, HTTPException):
        return _of_status(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError("The server's disk is full.", remedy="Free some space on it, then try again.")
    return YunheError(
        "The server failed in a way nobody foresaw.",
        remedy="Try again; if it stays, give the operator the request ID.",
    )


def _headers(problem: Problem, error: Exception) -> dict[str, str]:
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if problem.retryable:
        wait_s = error.retry_after_s if isinstance(error, TooManyRequestsError) else 1.0
        headers["Retry-After"] = str(math.ceil(wait_s))
    return headers


def _invalid_parameters(error: ValidationException) -> InvalidInputError:
    listed: list[dict[str, object]] = error.extra if isinstance(error.extra, list) else []
    found = [FieldProblem(str(item.get("key", "?")), str(item.get("message", "is wrong"))) for item in listed]
    return InvalidInputError(
        "A parameter is wrong." if found else error.detail,
        remedy="See /docs for what each parameter takes.",
        fields=tuple(found),
    )


def _of_status(error: HTTPException) -> YunheError:
    match error.status_code:
        case 401:
            return UnauthenticatedError(error.detail)
        case 403:
            return ForbiddenError(error.detail)
        case 404:
            return NotFoundError("There is nothing at this address.", remedy="See /docs for what there is.")
        case 405:
            return ConflictError(
                "This address does not take this method.", remedy="See /docs for what it takes."
            )
        case 413:
            return TooLargeError("The body is larger than this address takes.", remedy="Send less at once.")
        case status if status < 500:
            return InvalidInputError(error.detail)
        case _:
            return YunheError(error.detail)


ERROR_HANDLERS: dict[int | type[Exception], Any] = {Exception: answer_error, HTTPException: answer_error}
