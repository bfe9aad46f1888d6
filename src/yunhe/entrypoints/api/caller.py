"""Who is calling, what they may do, and the note of what they did."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.di import NamedDependency
from litestar.handlers import BaseRouteHandler
from litestar.params import SkipValidation

from yunhe.entrypoints.api.rates import RequestRates
from yunhe.kernel.errors import (
    MOST_PROBLEMS,
    FieldProblem,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
)
from yunhe.kernel.ids import JobId, ProjectId
from yunhe.kernel.quotas import QuotaName
from yunhe.kernel.validation import nearest
from yunhe.runtime.platform import Platform
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.storage.audit import Actor, act_as
from yunhe.trading.accounts.model import EVERY_PROJECT, Action, Principal
from yunhe.trading.applications.model import Submission

_OF_OTHERS = ProjectId("")
"""The project of a job that the caller does not see, if there is one."""

ApiRequest = Request[Principal, str, State]
"""A request whose caller has been authenticated."""


async def authenticate(connection: ASGIConnection[Any, Any, Any, Any]) -> Principal:
    """Return who holds the key in the ``Authorization`` header."""
    platform: Platform = connection.app.state.platform
    rates: RequestRates = connection.app.state.rates
    key = key_in(connection)
    rates.check_stranger(connection.client.host if connection.client else "", key)
    who = await platform.accounts.authenticate(key)
    rates.remember(key)
    rates.check_key(who.key_id)
    act_as(Actor(who.name, who.key_id))
    return who


def key_in(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """Return the key in the ``Authorization`` header; empty: there is none."""
    scheme, _, key_text = connection.headers.get("authorization", "").partition(" ")
    return key_text.strip() if scheme.lower() == "bearer" else ""


async def require_key(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Let nobody unknown pass; it runs before anything of the body is read."""
    connection.scope["user"] = await authenticate(connection)


async def known_parameters(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Refuse a query parameter that nobody would look at: a misspelt filter must not list everything."""
    if "\0" in connection.scope["path"] or any("\0" in value for value in connection.query_params.values()):
        raise InvalidInputError("There is a NUL character in the address.", remedy="Leave it out.")
    known = [
        getattr(field.kwarg_definition, "name", None) or name
        for name, field in handler.parsed_fn_signature.parameters.items()
    ]
    unknown = [name for name in connection.query_params if name not in known]
    if unknown:
        raise InvalidInputError(
            f"There is no parameter {', '.join(unknown[:MOST_PROBLEMS])} here.",
            remedy="See /docs for what there is.",
            fields=tuple(
                FieldProblem(name, "there is no such parameter", did_you_mean=nearest(name, known))
                for name in unknown[:MOST_PROBLEMS]
            ),
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal of one request, before the platform."""

    platform: Platform
    who: Principal
    rates: RequestRates

    async def authorize(self, action: Action, project_id: ProjectId, subject: str = "") -> None:
        """Raise ``ForbiddenError`` unless the caller may do *action* in the project; denials are audited."""
        await self.platform.accounts.authorize(self.who, action, project_id, subject)
        if project_id != EVERY_PROJECT:
            settings = await self.platform.accounts.project_settings(project_id)
            self.rates.check_project(project_id, settings.limits.get(QuotaName.REQUESTS_PER_S))

    async def authorize_each(self, action: Action, submissions: Iterable[Submission], subject: str) -> None:
        """Raise ``ForbiddenError`` unless the caller may do *action* in the project of each submission."""
        for project_id in dict.fromkeys(submission.project_id for submission in submissions):
            await self.authorize(action, project_id, subject)

    async def authorize_everywhere(self, action: Action, subject: str = "") -> None:
        """Raise ``ForbiddenError`` unless the caller may do *action* to the platform itself."""
        await self.authorize(action, EVERY_PROJECT, subject)

    async def may_everywhere(self, action: Action) -> bool:
        """Return whether the caller may do *action* to the platform itself; nothing is audited."""
        return await self.platform.accounts.may(self.who, action, EVERY_PROJECT)

    def require_a_role(self) -> None:
        """Raise ``ForbiddenError`` for a key whose holder belongs to no project: what there is does not concern them."""
        if not self.who.memberships:
            raise ForbiddenError(
                f"{self.who.name} belongs to no project.",
                remedy="Ask an admin to give you a role: yunhe project add PROJECT USER --role ROLE.",
            )

    async def job(self, job_id: str, action: Action = Action.SEE) -> Job:
        """Return a job the caller may see and do *action* to; one that may not be seen does not exist."""
        mine = tuple(membership.project_id for membership in self.who.memberships)
        try:
            job = await self.platform.orchestration.job(
                JobId(job_id), among=None if EVERY_PROJECT in mine else mine
            )
        except (
            NotFoundError
        ):  # as much is done for a job of others as for none: time must not tell them apart
            if EVERY_PROJECT not in mine:
                with suppress(ForbiddenError):
                    await self.authorize(action, _OF_OTHERS, job_id)
            raise
        await self.authorize(action, job.project_id, job.id)
        return job

    async def projects(self, project: str) -> tuple[ProjectId, ...] | None:
        """Return which projects a question is about: the one asked for, else all the caller may see."""
        if not project:
            return await self.platform.accounts.visible_projects(self.who)
        await self.authorize(Action.SEE, ProjectId(project), "project")
        await self.platform.accounts.require_project(ProjectId(project))
        return (ProjectId(project),)


def provide_caller(request: ApiRequest) -> Caller:
    """Make the caller known to handlers."""
    return Caller(request.app.state.platform, request.user, request.app.state.rates)


TheCaller = NamedDependency[SkipValidation[Caller]]
