"""``yunhe config``: which platform and project this user works with."""

from typing import Annotated

import msgspec
import typer

from yunhe.entrypoints.cli.session.context import config_path, current_context, load_config, save_config
from yunhe.entrypoints.cli.terminal.screen import Format, OutputOption, PlainApp, err, out, print_json, table

app = PlainApp(no_args_is_help=True, help="Which platform and project this user works with.")


@app.command()
def ls(*, output: OutputOption = Format.TABLE) -> None:
    """List the platforms this user knows; the one in use has a mark. Keys are not shown."""
    config = load_config()
    if output is Format.JSON:
        print_json(
            [
                {
                    "name": name,
                    "current": name == config.current,
                    "url": context.url,
                    "project": context.project,
                }
                for name, context in config.contexts.items()
            ]
        )
        return
    rows = [
        ["*" if name == config.current else "", name, context.url, context.project]
        for name, context in config.contexts.items()
    ]
    if rows:
        out().print(table(["", "CONTEXT", "URL", "PROJECT"], rows))
    else:
        err().print("None yet: `yunhe up` brings one up here, `yunhe login URL` uses one elsewhere.")


@app.command()
def show(*, output: OutputOption = Format.TABLE) -> None:
    """Show what commands work with now, the environment (YUNHE_URL, YUNHE_KEY, YUNHE_PROJECT) included."""
    context, config = current_context(), load_config()
    shown = {
        "context": config.current,
        "url": context.url,
        "key": f"{context.key[:6]}…" if context.key else "none",
        "project": context.project,
        "ca_file": context.ca_file,
        "file": str(config_path()),
    }
    if output is Format.JSON:
        print_json(shown)
    else:
        out().print(table(["SETTING", "VALUE"], [[word, value or "–"] for word, value in shown.items()]))


@app.command()
def use(name: Annotated[str, typer.Argument(metavar="CONTEXT", help="From `yunhe config ls`.")]) -> None:
    """Use another platform from now on."""
    config = load_config().using(name)
    save_config(config)
    err().print(f"✓ using {name} ({config.context().url})")


@app.command()
def forget(name: Annotated[str, typer.Argument(metavar="CONTEXT", help="From `yunhe config ls`.")]) -> None:
    """Forget a platform and its key."""
    config = load_config()
    config.using(name)
    left = {known: context for known, context in config.contexts.items() if known != name}
    current = config.current if config.current in left else next(iter(left), config.current)
    save_config(msgspec.structs.replace(config, contexts=left, current=current))
    err().print(f"✓ {name} is forgotten")
