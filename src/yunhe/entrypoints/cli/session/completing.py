"""What the shell may complete: names of jobs, pools and policies, asked of the platform and never in its way."""

from collections.abc import Callable, Iterable
from itertools import islice

from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.client import Client
from yunhe.scheduling.decision.model import Policy

MOST = 50
"""Jobs that are looked at; newest first."""


def job_names(incomplete: str) -> list[str]:
    """Return names and IDs of recent jobs that begin so."""
    return _begun(
        incomplete,
        lambda client: [word for job in islice(client.jobs(), MOST) for word in (job.name, str(job.id))],
    )


def pool_names(incomplete: str) -> list[str]:
    """Return the pools whose names begin so."""
    return _begun(incomplete, lambda client: [pool.spec.name for pool in client.pools()])


def policy_names(incomplete: str) -> list[str]:
    """Return the policies whose names begin so."""
    return [str(policy) for policy in Policy if policy.startswith(incomplete)]


def _begun(incomplete: str, words: Callable[[Client], Iterable[str]]) -> list[str]:
    try:
        with connected() as client:
            return sorted({word for word in words(client) if word.startswith(incomplete)})
    except Exception:  # noqa: BLE001 - somebody presses a key in a shell: a platform that does not answer completes nothing
        return []
