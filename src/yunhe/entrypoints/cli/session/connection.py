"""The platform, as the commands reach it: a client of the context in use, and jobs by what people call them."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from yunhe.control.pools.model import Pool
from yunhe.entrypoints.cli.session.context import Context, current_context
from yunhe.entrypoints.client import Client
from yunhe.entrypoints.client.transport import Address
from yunhe.kernel.errors import FieldProblem, InvalidInputError, NotFoundError, UnauthenticatedError
from yunhe.kernel.ids import JobId, PoolId
from yunhe.kernel.validation import nearest
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.trading.demand.model import Task

RECENT = 500
SHORTEST_END = 4


@contextmanager
def connected(context: Context | None = None) -> Generator[Client]:
    """Yield a client of the platform in use."""
    context = current_context() if context is None else context
    if not context.key:
        raise UnauthenticatedError(
            f"There is no key for {context.url}.",
            remedy="Bring up a platform with `yunhe up`, or use one with `yunhe login URL`.",
        )
    if not context.key.isascii():
        raise UnauthenticatedError(
            "The key has letters that no key has.", remedy="Copy it again; it begins with yk_."
        )
    refuse_clear(context.url)
    with Client(context.url, context.key, verify=context.ca_file or True) as client:
        yield client


def refuse_clear(url: str) -> None:
    """Refuse an address to which a key would go unencrypted; only this machine itself is reached so."""
    address = Address(url)
    if address.parts().scheme != "https" and not address.is_loopback():
        raise InvalidInputError(
            f"A key would go to {url} in clear, for everybody on the way to read.",
            remedy="Use https://, or a tunnel to this machine (ssh -L 8600:127.0.0.1:8600 HOST).",
            fields=(FieldProblem("url", "is not encrypted", url),),
        )


def find_job(client: Client, called: str) -> Job:
    """Return the job people mean: by ID, by the end of one, or the newest of a name."""
    if called.startswith("job_"):
        return client.job(JobId(called))
    named = list(islice(client.jobs(name=called), 1)) if called else []
    if named:
        return named[0]
    recent = list(islice(client.jobs(), RECENT))
    ends = [job for job in recent if job.id.endswith(called)]
    if len(called) < SHORTEST_END or not ends:
        from difflib import get_close_matches  # noqa: PLC0415 - only for who has mistyped

        close = get_close_matches(called, {job.name for job in recent}, n=1)
        meant = f"Did you mean {close[0]!r}? " if close else ""
        raise NotFoundError(f"There is no job {called!r}.", remedy=f"{meant}List them with `yunhe ps --all`.")
    if len(ends) > 1:
        raise InvalidInputError(
            f"{len(ends)} jobs end in {called!r}.", remedy="Give more of the ID; `yunhe ps` shows it."
        )
    return ends[0]


def find_job_id(client: Client, called: str) -> JobId:
    """Return the ID of the job people mean; one that is given whole is not asked after first."""
    return JobId(called) if called.startswith("job_") else find_job(client, called).id


def refuse_unknown_pools(tasks: Sequence[Task], pools: Mapping[PoolId, Pool]) -> None:
    """Refuse tasks that name a pool which is not registered: they would wait for ever."""
    known = sorted(pool.spec.name for pool in pools.values())
    problems = [
        FieldProblem(field, "there is no such pool", name, nearest(name, known))
        for task in tasks
        for field, name in _named_pools(task)
        if name not in known
    ]
    if problems:
        raise NotFoundError(
            f"There is no pool {problems[0].value!r}; nothing was submitted.",
            remedy=f"Registered: {', '.join(known[:10]) or 'none'}. List them with `yunhe pool ls`, add one with `yunhe pool add`.",
            fields=tuple(dict.fromkeys(problems)),
        )


def _named_pools(task: Task) -> Iterator[tuple[str, str]]:
    needs = task.resources
    for way in ("any_of", "ordered"):
        for number, choice in enumerate(getattr(needs, way)):
            if choice.pool:
                yield f"resources.{way}[{number}].pool", choice.pool
    if needs.pool:
        yield "resources.pool", needs.pool


def pools_by_id(client: Client) -> dict[PoolId, Pool]:
    """Return every pool by its ID, to tell where it is."""
    return {pool.id: pool for pool in client.pools()}
