"""Quotas and network policy of a project on the command line: what the options say, and how a project is shown."""

from typing import Annotated

import msgspec
import typer
from rich.console import RenderableType

from yunhe.entrypoints.cli.terminal.screen import bytes_text, table
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.quotas import NO_LIMIT, OPTIONS, WORDS, QuotaName, QuotaUse
from yunhe.kernel.units import parse_bytes
from yunhe.trading.accounts.model import ProjectChange, ProjectState

_LIMIT = "A number, unlimited or default"


def _option(name: QuotaName, what: str) -> typer.models.OptionInfo:
    how = f"{_LIMIT}; bytes also as 20GB" if "bytes" in name else _LIMIT
    return typer.Option(f"--{OPTIONS[name]}", metavar="N", help=f"{what} {how}.")


QueuedOption = Annotated[str, _option(QuotaName.QUEUED, "Most jobs that wait.")]
RunningOption = Annotated[str, _option(QuotaName.RUNNING, "Most jobs that run; others wait.")]
UploadFileOption = Annotated[str, _option(QuotaName.UPLOAD_FILE_BYTES, "Largest archive.")]
UploadDayOption = Annotated[str, _option(QuotaName.UPLOAD_BYTES_PER_DAY, "Most sent in a day (UTC).")]
BlobOption = Annotated[str, _option(QuotaName.BLOB_BYTES, "Most kept of archives and outputs.")]
LogOption = Annotated[str, _option(QuotaName.LOG_BYTES, "Most kept of logs.")]
JobLogOption = Annotated[str, _option(QuotaName.JOB_LOG_BYTES, "Most kept of one attempt's log.")]
RequestsOption = Annotated[str, _option(QuotaName.REQUESTS_PER_S, "Most requests a second.")]
EgressOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="BLOCK",
        help="Where its tasks may connect to: none, default, or blocks such as 10.0.0.0/8:443; more than once.",
    ),
]


def change_of(limits: dict[QuotaName, str], egress: list[str] | None) -> ProjectChange:
    """Return what the options say; every one that cannot be read is named."""
    problems: list[FieldProblem] = []
    wanted: dict[QuotaName, int | None] = {}
    for name, text in limits.items():
        try:
            if text:
                wanted[name] = _limit(name, text)
        except ValueError as error:
            problems.append(FieldProblem(f"--{OPTIONS[name]}", str(error), text))
    words = {"none", "default"} & set(egress or ())
    if words and len(egress or ()) > 1:
        problems.append(FieldProblem("--egress", f"{words.pop()} stands alone", " ".join(egress or ())))
    if not wanted and egress is None and not problems:
        problems.append(FieldProblem("(options)", "none is given"))
    if problems:
        raise InvalidInputError("Nothing was changed.", remedy="Fix what is listed.", fields=tuple(problems))
    return ProjectChange(limits=wanted, egress=_policy(egress))


def _policy(egress: list[str] | None) -> tuple[str, ...] | msgspec.UnsetType | None:
    if egress is None:
        return msgspec.UNSET
    if egress == ["default"]:
        return None
    return () if egress == ["none"] else tuple(egress)


def _limit(name: QuotaName, text: str) -> int | None:
    if text in ("unlimited", "default"):
        return NO_LIMIT if text == "unlimited" else None
    if "bytes" in name:
        return parse_bytes(text)
    if not text.isascii() or not text.isdigit():
        raise ValueError("must be a whole number, unlimited or default")
    return int(text)


def project_view(state: ProjectState) -> RenderableType:
    """Return a project's quotas as a table."""
    rows = [[use.name, _shown(use, use.used), _shown(use, use.limit), _note(use)] for use in state.quotas]
    return table(["QUOTA", "USED", "LIMIT", "IS"], rows)


def egress_text(state: ProjectState) -> str:
    """Return where tasks of a project may connect to, in a line."""
    if state.egress is None:
        return "as pools allow"
    return ", ".join(state.egress) if state.egress else "nowhere"


def _shown(use: QuotaUse, count: int | None) -> str:
    if count is None:
        return "unlimited" if count is use.limit and use.used is not None else "–"
    return bytes_text(count) if "bytes" in use.name else str(count)


def _note(use: QuotaUse) -> str:
    return WORDS[use.name] + ("" if use.own else "  (default)")
