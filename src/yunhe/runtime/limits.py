"""What a server allows in all, and how long it keeps what nobody asks for again."""

import tomllib
from pathlib import Path

import msgspec

from yunhe.kernel.errors import FieldProblem, InvalidInputError
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


class SettingsFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ``settings.toml`` in a server's home may say; what it does not say is as by default."""

    limits: ServerLimits = ServerLimits()
    retention: Retention = Retention()


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
        for table, values in (("limits", said.limits), ("retention", said.retention))
        for name, value in msgspec.structs.asdict(values).items()
        if value <= 0
    )
    if problems:
        raise _refusal(path, problems)
    return said


def _refusal(path: Path, problems: tuple[FieldProblem, ...]) -> InvalidInputError:
    return InvalidInputError(
        f"{path} cannot be used; the server was not started.", remedy="Fix what is listed.", fields=problems
    )
