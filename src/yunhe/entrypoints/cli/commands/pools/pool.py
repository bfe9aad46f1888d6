"""``yunhe pool``: where work can run."""

import re
import time
from collections.abc import Iterable
from typing import Annotated

import typer

from yunhe.control.pools.model import Check, FactChanges, Pool, PoolSpec, PoolState
from yunhe.entrypoints.cli.commands.pools.facts import (
    CarbonOption,
    EnergyPriceOption,
    LabelOption,
    PlaceOption,
    PueOption,
    ReliabilityOption,
    SiteOption,
    SpeedOption,
    TaintOption,
    UnsetOption,
    WaitOption,
    WattsOption,
    changes_of,
)
from yunhe.entrypoints.cli.commands.pools.prices import parse_prices
from yunhe.entrypoints.cli.session.completing import pool_names
from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    YesOption,
    amount,
    confirm,
    err,
    hints,
    out,
    print_json,
    spinner,
)
from yunhe.entrypoints.cli.views.facts import facts_table
from yunhe.entrypoints.cli.views.plugins import kinds_table
from yunhe.entrypoints.cli.views.pool import pool_page
from yunhe.entrypoints.cli.views.pools import (
    check_line,
    failed_line,
    graph_tree,
    pools_table,
    prices_table,
    total,
)
from yunhe.kernel.errors import FieldProblem, InvalidInputError, NotFoundError, PoolUnreachableError
from yunhe.kernel.ids import ProjectId

app = PlainApp(
    no_args_is_help=True, help="Add, list, show, check, describe, price, cordon, drain and remove pools."
)
PoolArgument = Annotated[
    str, typer.Argument(metavar="POOL", help="A pool's name.", autocompletion=pool_names)
]
PriceOption = Annotated[str, typer.Option("--price", help="Tier high: cpu=0.05/h,mem=0.01/h,A100=12/h.")]
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")


@app.command()
def add(  # noqa: PLR0913 - each is an option
    kind: Annotated[str, typer.Argument(metavar="KIND", help="local, ssh, or any of `yunhe pool kinds`.")],
    target: Annotated[str, typer.Argument(metavar="[TARGET]", help="Where it is; for ssh: user@host.")] = "",
    *,
    name: Annotated[str, typer.Option(help="What to call it; the host's name when not said.")] = "",
    place: PlaceOption = "",
    price: PriceOption = "",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="For ssh: the port.")] = None,
    identity: Annotated[str, typer.Option(help="For ssh: the key file on the server.")] = "",
    option: Annotated[list[str] | None, typer.Option(help="NAME=value the kind understands.")] = None,
    only_project: Annotated[str, typer.Option(help="Serve this project alone.")] = "",
    speed: SpeedOption = None,
    watts: WattsOption = "",
    pue: PueOption = None,
    energy_price: EnergyPriceOption = None,
    carbon: CarbonOption = "",
    reliability: ReliabilityOption = None,
    wait: WaitOption = "",
    site: SiteOption = "",
    label: LabelOption = None,
    taint: TaintOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Add a pool: check step by step that it can serve, then take it in; nothing is kept of one that cannot.

    A host needs nothing but Python and SSH. What can be said of each kind: `yunhe pool kinds`.

    Examples:
      yunhe pool add ssh ops@10.0.3.7 --name lab --price cpu=0.05/h,mem=0.01/h
      yunhe pool add ssh edge-07 --place cn-east/edge@31.2,121.5
      yunhe pool add local --name spare --option cpus=1
    """
    facts = changes_of(
        place=place,
        speed=speed,
        watts=watts,
        pue=pue,
        energy_price=energy_price,
        carbon=carbon,
        reliability=reliability,
        wait=wait,
        site=site,
        label=label,
        taint=taint,
    )
    spec = PoolSpec(
        name=_named(name, kind, target),
        kind=kind,
        target=target,
        options=_options(port, identity, option or []),
        place=facts.place,
        prices=parse_prices(price) if price else None,
        only_project=ProjectId(only_project) if only_project else None,
        facts=facts,
    )
    with connected() as client:
        _tell(client.add_pool(spec), spec.name, output)


def _named(name: str, kind: str, target: str) -> str:
    chosen = name or re.sub(r"[^a-z0-9._-]+", "-", target.rpartition("@")[2].lower()).strip("-._") or kind
    if not _NAME.fullmatch(chosen):
        field = FieldProblem("--name", "must be at most 64 of a-z, 0-9, '-', '_' and '.'", chosen)
        raise InvalidInputError("The pool was not added.", fields=(field,))
    if kind == "ssh" and not target:
        raise InvalidInputError(
            "Where is the host?", remedy="Give it after the kind: yunhe pool add ssh user@host"
        )
    return chosen


def _options(port: int | None, identity: str, more: list[str]) -> dict[str, str]:
    options = {**({"port": str(port)} if port else {}), **({"identity": identity} if identity else {})}
    for text in more:
        word, equals, value = text.partition("=")
        if not (word and equals):
            raise InvalidInputError(
                "The pool was not added.", fields=(FieldProblem("--option", "must be NAME=value", text),)
            )
        options[word] = value
    return options


def _tell(steps: Iterable[Check | Pool], name: str, output: Format) -> None:
    """Print each step as it comes; a step that failed is the exit code."""
    began, console = time.monotonic(), err()
    checks: list[Check] = []
    pool: Pool | None = None
    try:
        with spinner(f"reaching {name}") as turning:
            for step in steps:
                if isinstance(step, Pool):
                    pool = step
                    continue
                checks.append(step)
                if output is Format.TABLE:
                    turning.print(check_line(step) if step.ok else failed_line(step))
    finally:
        if output is Format.JSON and checks:
            print_json({"checks": checks, "pool": pool})
    failed = [check for check in checks if not check.ok]
    if failed or pool is None:
        first = failed[0] if failed else Check(step="connected", ok=False)
        raise PoolUnreachableError(
            f"{name} is not ready: {first.failure}",
            remedy=first.remedy or f"Fix it, then `yunhe pool check {name}`.",
        )
    if output is Format.TABLE:
        took = time.monotonic() - began
        console.print(f"{name} {pool.standing} in {took:.1f} s   {amount(total(pool))}   {pool.limits}")
        console.print(
            hints({"try it": f"yunhe run --pool {name} -- hostname", "price": f"yunhe pool price {name}"})
        )


@app.command()
def kinds(*, output: OutputOption = Format.TABLE) -> None:
    """List the kinds of pools that can be added, with what can be said of each."""
    with connected() as client:
        plugins = client.plugins()
    if output is Format.JSON:
        print_json({plugin.name: {"target": plugin.target, "options": plugin.options} for plugin in plugins})
    else:
        out().print(kinds_table(plugins))


@app.command()
def tree(
    pool: Annotated[str, typer.Argument(metavar="[POOL]", help="A pool's name; all when not said.")] = "",
    *,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show pools, their nodes and what each node has and uses, as a tree."""
    with connected() as client:
        graph = client.graph(pool)
    if output is Format.JSON:
        print_json(graph)
    else:
        out().print(graph_tree(graph))


@app.command()
def ls(*, output: OutputOption = Format.TABLE) -> None:
    """List pools: where they are, what they have, whether they take work."""
    with connected() as client:
        pools = client.pools()
    if output is Format.JSON:
        print_json(pools)
    elif pools:
        out().print(pools_table(pools))
    else:
        err().print("No pool yet. Add one with `yunhe pool add ssh user@host`.")


@app.command()
def show(pool: PoolArgument, *, output: OutputOption = Format.TABLE) -> None:
    """Show one pool: account, quotas, sizes, prices, what is known of it, and what its engine can do and why not."""
    with connected() as client:
        found, known = client.pool(pool), client.pool_facts(pool)
        try:
            prices = client.prices(pool)
        except NotFoundError:
            prices = None
    if output is Format.JSON:
        print_json({"pool": found, "prices": prices, "facts": known.facts})
    else:
        out().print(pool_page(found, prices, known))


@app.command("set")
def set_facts(  # noqa: PLR0913 - each is an option
    pool: PoolArgument,
    *,
    place: PlaceOption = "",
    speed: SpeedOption = None,
    watts: WattsOption = "",
    pue: PueOption = None,
    energy_price: EnergyPriceOption = None,
    carbon: CarbonOption = "",
    reliability: ReliabilityOption = None,
    wait: WaitOption = "",
    site: SiteOption = "",
    label: LabelOption = None,
    taint: TaintOption = None,
    unset: UnsetOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Say what is so of a pool, for decisions to weigh; what is not said stays as it is.

    Examples:
      yunhe pool set lab --speed 1.4 --watts 60..250 --carbon 420 --reliability 0.9995
      yunhe pool set lab --carbon hours.csv --label disk=ssd --label rack=b
      yunhe pool set lab --unset speed --unset labels.rack
    """
    changes = changes_of(
        place=place,
        speed=speed,
        watts=watts,
        pue=pue,
        energy_price=energy_price,
        carbon=carbon,
        reliability=reliability,
        wait=wait,
        site=site,
        label=label,
        taint=taint,
        unset=unset,
    )
    if changes == FactChanges():
        raise InvalidInputError("Nothing was said of the pool.", remedy="See yunhe pool set --help.")
    with connected() as client:
        known = client.set_pool_facts(pool, changes)
    if output is Format.JSON:
        print_json(known)
    else:
        out().print(facts_table(known))


@app.command()
def check(pool: PoolArgument, *, output: OutputOption = Format.TABLE) -> None:
    """Check a pool step by step; what does not work comes with its remedy."""
    with connected() as client:
        _tell(client.check_pool(pool), pool, output)


@app.command()
def drain(
    pool: PoolArgument,
    *,
    off: Annotated[bool, typer.Option("--off", help="Take work again.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Also stop the jobs there, each with its grace to save its work.")
    ] = False,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Take no new work on a pool; what runs there goes on, or is stopped with --stop. --off takes work again."""
    if off and stop:
        raise typer.BadParameter("--stop and --off contradict each other: stop jobs with yunhe stop JOB…")
    if stop and not confirm(f"Stop every job on {pool}?", yes=yes):
        raise typer.Abort
    with connected() as client:
        drained = client.drain_pool(pool, on=not off, stop=stop)
    if output is Format.JSON:
        print_json(drained)
        return
    if drained.drained:
        err().print(f"{pool} takes no new work.   again   yunhe pool drain {pool} --off")
    if not drained.drained or drained.state is not PoolState.READY:
        err().print(f"{pool} is {drained.state}{': ' if drained.reason else ''}{drained.reason.rstrip('.')}.")


@app.command()
def cordon(
    pool: PoolArgument,
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node's name in its pool.")],
    *,
    off: Annotated[bool, typer.Option("--off", help="Take work again.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Take no new work on one node of a pool; what runs there goes on. --off takes work again."""
    with connected() as client:
        changed = client.cordon_node(pool, node, on=not off)
    if output is Format.JSON:
        print_json(changed)
    elif off:
        err().print(f"{node} takes work again.")
    else:
        err().print(f"{node} takes no new work.   again   yunhe pool cordon {pool} {node} --off")


@app.command()
def rm(
    pool: PoolArgument,
    *,
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if it has work or does not answer; nothing there is stopped."),
    ] = False,
    yes: YesOption = False,
) -> None:
    """Forget a pool that has no work left. Its jobs' logs and costs stay."""
    given_up = " What still runs there is given up, not stopped." if force else ""
    if not confirm(f"Forget pool {pool}? Logs and costs stay.{given_up}", yes=yes):
        raise typer.Abort
    with connected() as client:
        client.remove_pool(pool, force=force)
    err().print(f"{pool} is gone.")


@app.command()
def price(
    pool: PoolArgument,
    prices: Annotated[str, typer.Argument(metavar="[PRICES]", help="Tier high; lower tiers follow.")] = "",
    *,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what a pool charges, or set it from now on.

    Examples:
      yunhe pool price lab
      yunhe pool price lab cpu=0.05/h,mem=0.01/h,io=0.001/GiB
    """
    wanted = parse_prices(prices) if prices else None
    with connected() as client:
        listed = client.set_prices(pool, wanted) if wanted else client.prices(pool)
    if output is Format.JSON:
        print_json(listed)
    else:
        out().print(prices_table(listed))
