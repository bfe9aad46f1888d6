"""``yunhe down``: stop the server; everything stays."""

from yunhe.entrypoints.cli.session import daemon
from yunhe.entrypoints.cli.terminal.screen import HomeOption, PlainApp, err, spinner
from yunhe.runtime.settings import default_home

app = PlainApp()


@app.command()
def down(home: HomeOption = None) -> None:
    """Stop the server of this machine. Jobs go on and data stays; `yunhe up` takes both up again."""
    with spinner("stopping the server"):
        stopped = daemon.stop((home or default_home()).resolve())
    if stopped is None:
        err().print("No server of yours runs here.")
    else:
        err().print(f"Yunhe is down. Jobs go on, data stays.   again   {daemon.command('up', home)}")
