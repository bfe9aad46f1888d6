"""``yunhe serve``: a server process in the foreground."""

from pathlib import Path
from typing import Annotated

import typer

from yunhe.entrypoints.cli.terminal.screen import LogLevelOption, PlainApp
from yunhe.kernel.units import MIB
from yunhe.runtime.settings import (
    DEFAULT_PORT,
    DEFAULT_RESERVE_MIB,
    LogLevel,
    ProcessRole,
    Settings,
    default_home,
)

app = PlainApp()


@app.command()
def serve(  # noqa: PLR0913 - each is an option
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
    from yunhe.entrypoints.api.serve import serve as serve_api  # noqa: PLC0415 - heavy, and only this command's

    serve_api(
        Settings(
            home=(home or default_home()).resolve(),
            database_url=database,
            role=role,
            host=host,
            port=port,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            reserve_bytes=reserve_mib * MIB,
            log_level=log_level,
            log_stderr=log_stderr,
        )
    )
