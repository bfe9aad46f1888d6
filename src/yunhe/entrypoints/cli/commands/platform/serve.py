"""``yunhe serve``: a server process in the foreground."""

import os
from pathlib import Path
from typing import Annotated

import typer

from yunhe.entrypoints.cli.terminal.screen import LogLevelOption, PlainApp, refuse_visible_password
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.units import MIB, parse_duration_s
from yunhe.runtime.limits import read_settings_file
from yunhe.runtime.settings import (
    DEFAULT_AUDIT_DAYS,
    DEFAULT_PORT,
    DEFAULT_RESERVE_MIB,
    LogLevel,
    ProcessRole,
    Settings,
    default_home,
)
from yunhe.scheduling.perception.model import FactBounds
from yunhe.storage.private_files import private_home

app = PlainApp()
AuditDaysOption = Annotated[
    int, typer.Option(envvar="YUNHE_AUDIT_RETENTION_DAYS", min=1, help="How long audit lines are kept.")
]
ToldAgeOption = Annotated[
    str, typer.Option(envvar="YUNHE_TOLD_AGE", help="The same for what an operator told of a pool.")
]
FilesOption = Annotated[
    Path | None,
    typer.Option(
        envvar="YUNHE_FILES",
        help="Where archives and outputs are kept: a folder that all servers see. Below the home with SQLite,"
        " in the database with PostgreSQL when not said.",
    ),
]
HeadWebhookOption = Annotated[
    str,
    typer.Option(envvar="YUNHE_HEAD_WEBHOOK", help="Post signed heads of ledger and audit log there."),
]


@app.command()
def serve(  # noqa: PLR0913 - each is an option
    context: typer.Context,
    *,
    role: Annotated[
        ProcessRole, typer.Option(help="all, api (answers) or worker (drives pools).")
    ] = ProcessRole.ALL,
    host: Annotated[
        str, typer.Option(help="Where to listen; elsewhere than loopback needs TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port.")] = DEFAULT_PORT,
    database: Annotated[
        str,
        typer.Option(envvar="YUNHE_DATABASE", help="postgresql://…; SQLite below the home when not said."),
    ] = "",
    home: Annotated[Path | None, typer.Option(help="Where data lives; ~/.yunhe when not said.")] = None,
    files: FilesOption = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="The server's certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    reserve_mib: Annotated[
        int,
        typer.Option(
            envvar="YUNHE_RESERVE_MIB",
            min=0,
            help="Room on SQLite's disk that new jobs must leave to those that have begun.",
        ),
    ] = DEFAULT_RESERVE_MIB,
    fact_age: Annotated[
        str,
        typer.Option(
            envvar="YUNHE_FACT_AGE",
            help="From which age on decisions do not use what a pool reports or measures.",
        ),
    ] = "60s",
    feed_age: Annotated[
        str,
        typer.Option(envvar="YUNHE_FEED_AGE", help="The same for a feed; it is read four times as often."),
    ] = "1h",
    told_age: ToldAgeOption = "365d",
    audit_retention_days: AuditDaysOption = DEFAULT_AUDIT_DAYS,
    head_webhook: HeadWebhookOption = "",
    log_level: LogLevelOption = LogLevel.INFO,
    log_stderr: Annotated[bool, typer.Option(help="Log to standard error too, not only to the file.")] = True,
) -> None:
    """Run a server process in the foreground, until SIGTERM or Ctrl-C. Jobs go on without it.

    Its log is server.log in the home, as JSON lines; on a terminal it is shown as text.

    Examples:
      yunhe serve
      yunhe serve --role api --database postgresql://yunhe@db/yunhe
      yunhe serve --host 0.0.0.0 --tls-certificate cert.pem --tls-key key.pem
    """
    refuse_visible_password(context)
    os.environ.pop("YUNHE_DATABASE", None)  # it may hold a password, and agents inherit the environment
    from yunhe.entrypoints.api.serve import serve as serve_api  # noqa: PLC0415 - heavy, and only this command's

    at = private_home((home or default_home()).resolve())
    said = read_settings_file(at)
    serve_api(
        Settings(
            home=at,
            limits=said.limits,
            retention=said.retention,
            quotas=said.quotas,
            database_url=database,
            files=files,
            role=role,
            host=host,
            port=port,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            reserve_bytes=reserve_mib * MIB,
            audit_retention_s=audit_retention_days * 86400.0,
            head_webhook=head_webhook,
            fact_bounds=_bounds(fact_age, feed_age, told_age),
            log_level=log_level,
            log_stderr=log_stderr,
        )
    )


def _bounds(fact_age: str, feed_age: str, told_age: str) -> FactBounds:
    return FactBounds(
        look_s=_seconds("--fact-age", fact_age),
        feed_s=_seconds("--feed-age", feed_age),
        told_s=_seconds("--told-age", told_age),
    )


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise InvalidInputError(
            "The server was not started.", fields=(FieldProblem(option, str(error), text),)
        ) from None
