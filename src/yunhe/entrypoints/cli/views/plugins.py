"""Plugins as people read them."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from yunhe.control.plugins.model import Plugin, PluginProcess, PluginState
from yunhe.entrypoints.cli.terminal.screen import span, table
from yunhe.entrypoints.cli.terminal.tables import FittingTable

COLOURS = {PluginState.ACTIVE: "green", PluginState.STARTING: "yellow", PluginState.OFFLINE: "red"}


def plugins_table(plugins: Sequence[Plugin]) -> FittingTable:
    """Return the list of plugins."""
    rows = [
        [
            plugin.name,
            plugin.version,
            plugin.vendor,
            Text(plugin.state, style=COLOURS[plugin.state]),
            "in process" if plugin.in_process else f"{len(plugin.instances)} of its own",
            " ".join(plugin.powers) or "–",
            ", ".join(plugin.pools) or "–",
        ]
        for plugin in plugins
    ]
    return table(
        ["PLUGIN", "VERSION", "VENDOR", "STATE", "RUNS", "POWERS", "POOLS"], rows, flexible=(2, 5, 6)
    )


def kinds_table(plugins: Sequence[Plugin]) -> FittingTable:
    """Return each kind a pool can be of, with what can be said of such a pool."""
    rows: list[list[str | Text]] = []
    for plugin in plugins:
        name = Text(plugin.name, style="bold")
        rows.append([name, "TARGET" if plugin.target else "", plugin.target or plugin.summary])
        rows.extend(
            ["", option, sentence + " (administrators)" * (option in plugin.admin_options)]
            for option, sentence in sorted(plugin.options.items())
        )
    return table(["KIND", "OPTION", "MEANS"], rows)


def plugin_page(plugin: Plugin, *, now: float) -> RenderableType:
    """Return all that is known of one plugin."""
    head = Text.assemble(
        (f"{plugin.name} {plugin.version}", "bold"),
        f"  {plugin.vendor}  ",
        (plugin.state, COLOURS[plugin.state]),
        f"  contract {plugin.contract}",
    )
    parts: list[RenderableType] = [head, Text(plugin.summary)]
    if plugin.reason:
        parts.append(Text(plugin.reason, style="red"))
    parts += [Text(f"pools: {', '.join(plugin.pools) or 'none'}"), Text(), kinds_table([plugin])]
    if plugin.instances:
        rows = [
            [one.id, one.version, one.state, one.address, f"{span(max(0.0, now - one.heartbeat_at))} ago"]
            for one in plugin.instances
        ]
        parts += [Text(), table(["INSTANCE", "VERSION", "STATE", "ADDRESS", "HEARD"], rows, flexible=(0,))]
    if plugin.processes:
        rows = [
            [
                one.instance,
                str(one.pid or "–"),
                _user(one),
                str(one.restarts),
                one.directory,
                one.reason or "–",
            ]
            for one in plugin.processes
        ]
        parts += [
            Text(),
            table(["PROCESS", "PID", "USER", "RESTARTS", "FOLDER", "LAST ENDED"], rows, flexible=(0, 4, 5)),
        ]
    powers = [[power, "yes", ""] for power in plugin.powers]
    powers += [[power, "no", why] for power, why in plugin.missing.items()]
    parts += [Text(), table(["POWER", "", "WHY NOT"], powers)]
    fields = [[one.ours, one.theirs or "–", one.note] for one in plugin.fields]
    parts += [Text(), table(["OURS", "THE ENGINE'S", "NOTE"], fields, flexible=(1, 2))]
    return Group(*parts)


def _user(process: PluginProcess) -> str:
    """Return whose rights a process has; one without a user of its own can read what the server can."""
    return "the server's" if process.uid is None else str(process.uid)
