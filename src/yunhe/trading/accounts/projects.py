"""What is set for a project: its own limits and the network policy of its tasks."""

import msgspec

from yunhe.kernel.confinement import is_block
from yunhe.kernel.errors import MOST_PROBLEMS, FieldProblem, InvalidInputError
from yunhe.kernel.quotas import NO_LIMIT, QuotaLimits, QuotaName, QuotaUse
from yunhe.kernel.units import KIB
from yunhe.storage.quotas import ProjectSettings
from yunhe.trading.accounts.model import Project, ProjectChange, ProjectState

LEAST: dict[QuotaName, int] = {QuotaName.JOB_LOG_BYTES: 16 * KIB, QuotaName.REQUESTS_PER_S: 1}
"""Less than this makes no sense; of others nothing at all may be allowed."""
MOST = 2**53
MOST_BLOCKS = 100
WITHOUT_USE = (QuotaName.UPLOAD_FILE_BYTES, QuotaName.JOB_LOG_BYTES, QuotaName.REQUESTS_PER_S)


def changed(settings: ProjectSettings, change: ProjectChange) -> ProjectSettings:
    """Return settings after a change; raise ``InvalidInputError`` with every value that cannot be."""
    _check(change)
    limits = {name: limit for name, limit in (settings.limits | change.limits).items() if limit is not None}
    egress = settings.egress if change.egress is msgspec.UNSET else change.egress
    return ProjectSettings(limits=limits, egress=egress)


def told(change: ProjectChange) -> str:
    """Return a change in a line of the audit log."""
    words = [f"{name}={'default' if limit is None else limit}" for name, limit in change.limits.items()]
    if change.egress is not msgspec.UNSET:
        blocks = "default" if change.egress is None else ",".join(change.egress) or "none"
        words.append(f"egress={blocks}")
    return " ".join(words)


def state_of(
    project: Project, settings: ProjectSettings, defaults: QuotaLimits, used: dict[QuotaName, int]
) -> ProjectState:
    """Return a project with each quota: what is used, and the most."""
    limits = defaults.over(settings.limits)
    quotas = tuple(
        QuotaUse(
            name=name,
            used=None if name in WITHOUT_USE else used.get(name, 0),
            limit=None if limits.of(name) == NO_LIMIT else limits.of(name),
            own=name in settings.limits,
        )
        for name in QuotaName
    )
    return ProjectState(id=project.id, created_at=project.created_at, egress=settings.egress, quotas=quotas)


def _check(change: ProjectChange) -> None:
    problems = [
        FieldProblem(
            f"limits.{name}",
            f"must be between {LEAST.get(name, 0)} and {MOST}, or -1 for no limit",
            str(limit),
        )
        for name, limit in change.limits.items()
        if limit is not None and limit != NO_LIMIT and not LEAST.get(name, 0) <= limit <= MOST
    ]
    blocks = change.egress or ()
    problems += [
        FieldProblem(f"egress[{number}]", "must be a block such as 192.0.2.0/24 or 192.0.2.7:443", block[:80])
        for number, block in enumerate(blocks)
        if not is_block(block)
    ]
    if len(blocks) > MOST_BLOCKS:
        problems.append(FieldProblem("egress", f"has more than {MOST_BLOCKS} blocks", str(len(blocks))))
    if problems:
        raise InvalidInputError(
            "The project cannot be set so; it stays as it is.",
            remedy="Fix what is listed.",
            fields=tuple(problems[:MOST_PROBLEMS]),
        )
