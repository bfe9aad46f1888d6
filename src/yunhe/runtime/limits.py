"""What a server allows in all, and how long it keeps what nobody asks for again."""

import tomllib
from pathlib import Path

import msgspec

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.quotas import NO_LIMIT, QuotaLimits
from yunhe.kernel.validation import read

DAY_S = 86400.0
SETTINGS_FILE = "settings.toml"


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of a server process."""

    connections: int = 2000
    """Open at once, in all."""
    connections_per_address: int = 256
    requests_per_s: int = 1000
    """Of one key; twice as many at once."""
    project_requests_per_s: int = 2000
    """About one project, by all its keys."""


class Retention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long things are kept after their last use."""

    blobs_days: float = 30
    """Archives and outputs that nobody has used."""
    usage_days: float = 30
    """Minutes of use; what is owed stays in the ledger."""
    logs_days: float = 30
    """Output of jobs, after they ended."""
    jobs_days: float = 90
    """Jobs that ended, with their outputs; what they cost stays in the ledger."""
    ended_jobs: int = 100_000
    """Jobs that ended, of one project; older ones go before their time."""
    audit_lines: int = 10_000_000
    """Lines of the audit log; older ones go before their time, by a signed cut."""
    keys_days: float = 90
    """API keys that ended."""
    events: int = 2_000_000
    """Events that everybody has dealt with; they go after seven days in any case."""
    sweep_s: float = 60
    """How often all this is looked at; one server process does so at a time."""


class SettingsFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ``settings.toml`` in a server's home may say; what it does not say is as by default."""

    limits: ServerLimits = ServerLimits()
    retention: Retention = Retention()
    quotas: QuotaLimits = QuotaLimits()
    """Of projects that have none of their own (``yunhe project set``); -1: no limit."""


def read_settings_file(home: Path) -> SettingsFile:
    """Return what the file in *home* says; raise ``InvalidInputError`` with every field that is wrong."""
    path = home / SETTINGS_FILE
    try:
        said = read(tomllib.loads(path.read_text()), SettingsFile)
    except FileNotFoundError:
        return SettingsFile()
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _refusal(path, (FieldProblem("(whole)", str(error)),)) from None
    except InvalidInputError as error:
        raise _refusal(path, error.fields) from None
    problems = tuple(
        FieldProblem(f"{table}.{name}", "must be above 0", f"{value:g}")
        for table, values in (("limits", said.limits), ("retention", said.retention), ("quotas", said.quotas))
        for name, value in msgspec.structs.asdict(values).items()
        if value <= 0 and not (table == "quotas" and value == NO_LIMIT)
    )
    if said.quotas.requests_per_s != QuotaLimits().requests_per_s:
        field = FieldProblem("quotas.requests_per_s", "is said as limits.project_requests_per_s")
        problems = (*problems, field)
    if problems:
        raise _refusal(path, problems)
    return said


def _refusal(path: Path, problems: tuple[FieldProblem, ...]) -> InvalidInputError:
    return InvalidInputError(
        f"{path} cannot be used; the server was not started.", remedy="Fix what is listed.", fields=problems
    )
