"""Tables of pools and their nodes."""

from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from yunhe.control.pools.facts import check_changes, merge
from yunhe.control.pools.model import (
    Fact,
    FactChanges,
    NodeAbout,
    NodeLive,
    Pool,
    PoolNode,
    PoolSpec,
    PoolState,
)
from yunhe.infrastructure.contract.model import (
    Account,
    Catalogue,
    Description,
    Inventory,
    Isolation,
    Node,
)
from yunhe.kernel.errors import ConflictError, NotFoundError
from yunhe.kernel.ids import NodeId, PoolId, ProjectId, new_id
from yunhe.kernel.resources import Resources
from yunhe.kernel.validation import nearest
from yunhe.storage import leases
from yunhe.storage.database import AnyRow, Connection, Database, json_column, metadata
from yunhe.storage.leases import lease_columns

POOLS = sa.Table(
    "plugin_pool",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    json_column("spec"),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("drained", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("description", sa.LargeBinary),
    sa.Column("added_at", sa.Float, nullable=False),
    sa.Column("seen_at", sa.Float),
    json_column("notices", server_default="[]"),
    sa.Column("account", sa.LargeBinary),
    sa.Column("catalogue", sa.LargeBinary),
    *lease_columns(),
)
NODES = sa.Table(
    "plugin_node",
    metadata,
    sa.Column("id", sa.String(200), primary_key=True),
    sa.Column("pool_id", sa.ForeignKey("plugin_pool.id", ondelete="CASCADE"), nullable=False, index=True),
    json_column("total"),
    json_column("used"),
    sa.Column("ready", sa.Boolean, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("seen_at", sa.Float, nullable=False),
    json_column("about", server_default="{}"),
    json_column("live", server_default="{}"),
)
CORDONS = sa.Table(
    "plugin_cordon",
    metadata,
    sa.Column("node_id", sa.String(200), primary_key=True),
    sa.Column("pool_id", sa.ForeignKey("plugin_pool.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("at", sa.Float, nullable=False),
)
"""Apart from the nodes, which are replaced whole with every look."""
FACTS = sa.Table(
    "plugin_fact",
    metadata,
    sa.Column("pool_id", sa.ForeignKey("plugin_pool.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    json_column("body"),
)

_MISSING = Description(engine="", version="")


class About(NamedTuple):
    """What an engine says of itself, as against what it has at the moment."""

    description: Description
    account: Account
    catalogue: Catalogue
    notices: tuple[str, ...]


def node_id(pool_id: PoolId, engines_own: str) -> NodeId:
    """Return a node's ID on this platform: the engine's own name for it, made unique by its pool."""
    return NodeId(f"{pool_id}/{engines_own}")


def engines_own(node: NodeId) -> NodeId:
    """Return what the engine calls a node."""
    return NodeId(node.partition("/")[2])


def read_pool_ids(connection: Connection) -> set[PoolId]:
    """Return the ID of every pool."""
    return {PoolId(found) for found in connection.scalars(sa.select(POOLS.c.id))}


def claim(connection: Connection, *, owner: str, now: float, ttl_s: float) -> dict[PoolId, PoolSpec]:
    """Take the connected pools that nobody watches; return what every pool held now was registered with."""
    connected = sa.select(POOLS.c.id).where(POOLS.c.state != PoolState.CONNECTING)
    leases.claim(connection, POOLS, connected, owner=owner, now=now, ttl_s=ttl_s)
    held = leases.keep(connection, POOLS, owner=owner, now=now, ttl_s=ttl_s)
    rows = connection.execute(sa.select(POOLS.c.id, POOLS.c.spec)).all()
    return {PoolId(row.id): spec_of(row) for row in rows if row.id in held}


def held_until_end(database: Database, owner: str) -> AbstractAsyncContextManager[None]:
    """End every lease of *owner* on pools when the block ends."""
    return leases.held_until_end(database, POOLS, owner)


def read_pools(connection: Connection, where: sa.ColumnElement[bool] | None = None) -> tuple[Pool, ...]:
    """Return pools with their nodes, by name."""
    query, inside = sa.select(POOLS).order_by(POOLS.c.name), sa.select(NODES).order_by(NODES.c.id)
    if where is not None:
        query = query.where(where)
        inside = inside.where(NODES.c.pool_id.in_(sa.select(POOLS.c.id).where(where)))
    cordoned = set(connection.scalars(sa.select(CORDONS.c.node_id)))
    nodes: dict[str, list[PoolNode]] = {}
    for row in connection.execute(inside):
        nodes.setdefault(row.pool_id, []).append(_to_node(row, cordoned))
    facts: dict[str, dict[str, Fact]] = {}
    for row in connection.execute(sa.select(FACTS).order_by(FACTS.c.name)):
        facts.setdefault(row.pool_id, {})[row.name] = msgspec.json.decode(row.body, type=Fact)
    return tuple(
        _to_pool(row, tuple(nodes.get(row.id, ())), facts.get(row.id, {}))
        for row in connection.execute(query)
    )


def read_pool(connection: Connection, name_or_id: str) -> Pool:
    """Return one pool by its name or ID."""
    found = read_pools(connection, _called(name_or_id))
    if not found:
        raise _no_pool(connection, name_or_id)
    return found[0]


def read_spec(connection: Connection, name_or_id: str) -> PoolSpec:
    """Return what one pool was registered with: all that is needed to call its engine."""
    row = connection.execute(sa.select(POOLS.c.spec).where(_called(name_or_id))).first()
    if row is None:
        raise _no_pool(connection, name_or_id)
    return spec_of(row)


def read_names_by_kind(connection: Connection) -> dict[str, list[str]]:
    """Return the names of the pools of each kind."""
    names: dict[str, list[str]] = {}
    for row in connection.execute(sa.select(POOLS.c.spec).order_by(POOLS.c.name)):
        spec = spec_of(row)
        names.setdefault(spec.kind, []).append(spec.name)
    return names


def spec_of(row: AnyRow) -> PoolSpec:
    """Return what the pool of a row was registered with."""
    return msgspec.json.decode(row.spec, type=PoolSpec)


def _called(name_or_id: str) -> sa.ColumnElement[bool]:
    return (POOLS.c.name == name_or_id) | (POOLS.c.id == name_or_id)


def _no_pool(connection: Connection, name_or_id: str) -> NotFoundError:
    meant = nearest(name_or_id, list(connection.scalars(sa.select(POOLS.c.name))))
    hint = f"Did you mean {meant}? " if meant else ""
    return NotFoundError(f"There is no pool {name_or_id}.", remedy=f"{hint}List them: yunhe pool ls.")


def intend(connection: Connection, spec: PoolSpec, now: float) -> PoolId:
    """Write the pool before anything is sent to it; the same spec again finds its row.

    Raise ``ConflictError`` where the name is another pool's.
    """
    facts = spec.facts or FactChanges()
    told = msgspec.structs.replace(facts, place=spec.place or facts.place)
    spec = msgspec.structs.replace(spec, facts=None, place=None)
    row = connection.execute(sa.select(POOLS).where(POOLS.c.name == spec.name)).first()
    if row is None:
        pool_id = PoolId(new_id("pool", now))
        connection.execute(
            POOLS.insert().values(
                id=pool_id,
                name=spec.name,
                spec=msgspec.json.encode(spec),
                state=PoolState.CONNECTING,
                added_at=now,
            )
        )
        tell(connection, pool_id, told, now)
        return pool_id
    known = spec_of(row)
    if (known.kind, known.target, known.options) != (spec.kind, spec.target, spec.options):
        raise ConflictError(
            f"There is a pool {spec.name} already, and it is {known.kind} {known.target}.".replace(" .", "."),
            remedy=f"Choose another name, or remove it first: yunhe pool rm {spec.name}.",
        )
    connection.execute(POOLS.update().where(POOLS.c.id == row.id).values(spec=msgspec.json.encode(spec)))
    tell(connection, PoolId(row.id), told, now)
    return PoolId(row.id)


def read_facts(connection: Connection, pool_id: PoolId) -> dict[str, Fact]:
    """Return what was told of a pool, and what feeds and measurements say of it."""
    rows = connection.execute(sa.select(FACTS).where(FACTS.c.pool_id == pool_id))
    return {row.name: msgspec.json.decode(row.body, type=Fact) for row in rows}


def read_feeds(connection: Connection, owner: str) -> dict[PoolId, Fact]:
    """Return the carbon intensity of every pool that *owner* looks after."""
    mine = sa.select(POOLS.c.id).where(POOLS.c.lease_owner == owner)
    rows = connection.execute(sa.select(FACTS).where(FACTS.c.name == "carbon", FACTS.c.pool_id.in_(mine)))
    return {PoolId(row.pool_id): msgspec.json.decode(row.body, type=Fact) for row in rows}


def note_feed(
    connection: Connection, pool_id: PoolId, feed: str, *, fact: Fact | None = None, problem: str = ""
) -> None:
    """Note what a feed said, or why it could not be read; nothing if the pool has another feed by now."""
    known = read_facts(connection, pool_id).get("carbon")
    if known is None or known.value.get("feed") != feed:
        return
    body = fact or msgspec.structs.replace(known, problem=problem)
    connection.execute(
        FACTS.update()
        .where(FACTS.c.pool_id == pool_id, FACTS.c.name == "carbon")
        .values(body=msgspec.json.encode(body))
    )


def tell(connection: Connection, pool_id: PoolId, changes: FactChanges, now: float) -> None:
    """Note what an operator says of a pool; refuse what cannot be so."""
    known = read_facts(connection, pool_id)
    check_changes(changes, FactChanges.of(known))
    merged = merge(known, changes, now)
    changed = {name for name in {*known, *merged} if known.get(name) != merged.get(name)}
    connection.execute(FACTS.delete().where(FACTS.c.pool_id == pool_id, FACTS.c.name.in_(changed)))
    for name in sorted(changed & merged.keys()):
        connection.execute(
            FACTS.insert().values(pool_id=pool_id, name=name, body=msgspec.json.encode(merged[name]))
        )


def delete(connection: Connection, pool_id: PoolId) -> None:
    """Forget a pool and its nodes."""
    connection.execute(POOLS.delete().where(POOLS.c.id == pool_id))


def delete_unconnected(connection: Connection, pool_id: PoolId) -> None:
    """Forget a pool unless it has been connected."""
    connection.execute(POOLS.delete().where(POOLS.c.id == pool_id, POOLS.c.state == PoolState.CONNECTING))


def mark_offline(connection: Connection, pool_id: PoolId, reason: str) -> None:
    """Note that a ready pool does not answer, and why."""
    connection.execute(
        POOLS.update()
        .where(POOLS.c.id == pool_id, POOLS.c.state == PoolState.READY)
        .values(state=PoolState.OFFLINE, reason=reason)
    )


def write_about(connection: Connection, pool_id: PoolId, about: About) -> None:
    """Note what an engine just said of itself."""
    if about.description.isolation is Isolation.ONE_PROJECT:
        _dedicate(connection, pool_id)
    connection.execute(
        POOLS.update()
        .where(POOLS.c.id == pool_id)
        .values(
            description=msgspec.json.encode(about.description),
            notices=msgspec.json.encode(about.notices),
            account=msgspec.json.encode(about.account),
            catalogue=msgspec.json.encode(about.catalogue),
        )
    )


def write_inventory(connection: Connection, pool_id: PoolId, inventory: Inventory, now: float) -> bool:
    """Note what an engine just said it has; return whether the pool is still there to have it.

    Only what changed is written, so that a large pool may be seen often.
    """
    updated = connection.execute(
        POOLS.update()
        .where(POOLS.c.id == pool_id)
        .values(seen_at=now, reason=_why_unfit(inventory), state=PoolState.READY)
    )
    if not updated.rowcount:
        return False
    columns = (column for column in NODES.c if column.name not in {"pool_id", "seen_at"})
    known = {row.id: row for row in connection.execute(sa.select(*columns).where(NODES.c.pool_id == pool_id))}
    seen = {node_id(pool_id, node.id): _node_values(node) for node in inventory.nodes}
    gone = sorted(known.keys() - seen.keys())
    if gone:
        connection.execute(NODES.delete().where(NODES.c.id.in_(gone)))
    fresh = [
        {"id": key, "pool_id": pool_id, "seen_at": inventory.taken_at, **values}
        for key, values in seen.items()
        if key not in known
    ]
    if fresh:
        connection.execute(NODES.insert(), fresh)
    for key, values in seen.items():
        if key in known and any(getattr(known[key], name) != value for name, value in values.items()):
            connection.execute(NODES.update().where(NODES.c.id == key).values(**values))
    connection.execute(NODES.update().where(NODES.c.pool_id == pool_id).values(seen_at=inventory.taken_at))
    return True


def _why_unfit(inventory: Inventory) -> str:
    """Say why no node of an inventory takes work; empty where one does."""
    if any(node.ready for node in inventory.nodes):
        return ""
    return "; ".join(f"{node.id}: {node.reason}" for node in inventory.nodes[:3])


def _node_values(node: Node) -> dict[str, Any]:
    return {
        "total": msgspec.json.encode(node.total),
        "used": msgspec.json.encode(node.used),
        "ready": node.ready,
        "reason": node.reason,
        "about": msgspec.json.encode(
            NodeAbout(isa=node.isa, labels=node.labels, taints=node.taints, system=node.system)
        ),
        "live": msgspec.json.encode(NodeLive(file_systems=node.file_systems, throughput=node.throughput)),
    }


def mark_silent(connection: Connection, reasons: dict[str, str]) -> None:
    """Mark the ready pools of these kinds offline, each with its kind's reason."""
    ready = sa.select(POOLS.c.id, POOLS.c.spec).where(POOLS.c.state == PoolState.READY)
    for row in connection.execute(ready).all():
        reason = reasons.get(spec_of(row).kind)
        if reason is not None:
            set_state(connection, PoolId(row.id), PoolState.OFFLINE, reason)


def set_drained(connection: Connection, pool_id: PoolId, *, drained: bool) -> None:
    """Note that a pool is to take no new work, or again; whether it answers is another matter."""
    connection.execute(POOLS.update().where(POOLS.c.id == pool_id).values(drained=drained))


def cordon(connection: Connection, pool: Pool, node: str, *, on: bool, now: float) -> None:
    """Take no new work on a node, or again; *node* is the engine's own name for it."""
    key = node if node.startswith(f"{pool.id}/") else node_id(pool.id, node)
    if key not in {one.id for one in pool.nodes}:
        shown = ", ".join(engines_own(one.id) for one in pool.nodes[:5])
        raise NotFoundError(
            f"Pool {pool.spec.name} has no node {node}.", remedy=f"Its nodes: {shown or 'none'}."
        )
    connection.execute(CORDONS.delete().where(CORDONS.c.node_id == key))
    if on:
        connection.execute(CORDONS.insert().values(node_id=key, pool_id=pool.id, at=now))


def _dedicate(connection: Connection, pool_id: PoolId) -> None:
    """Give a pool that cannot keep projects apart to one of them: the default one, unless the operator named another."""
    spec = spec_of(connection.execute(sa.select(POOLS.c.spec).where(POOLS.c.id == pool_id)).one())
    if spec.only_project is None:
        given = msgspec.structs.replace(spec, only_project=ProjectId("default"))
        connection.execute(
            POOLS.update().where(POOLS.c.id == pool_id).values(spec=msgspec.json.encode(given))
        )


def set_state(
    connection: Connection, pool_id: PoolId, state: PoolState, reason: str = "", **more: Any
) -> None:
    """Note a pool's state and why."""
    connection.execute(POOLS.update().where(POOLS.c.id == pool_id).values(state=state, reason=reason, **more))


def _to_node(row: AnyRow, cordoned: set[str]) -> PoolNode:
    return PoolNode(
        id=NodeId(row.id),
        pool_id=PoolId(row.pool_id),
        total=msgspec.json.decode(row.total, type=Resources),
        used=msgspec.json.decode(row.used, type=Resources),
        ready=row.ready,
        reason=row.reason,
        cordoned=row.id in cordoned,
        seen_at=row.seen_at,
        about=msgspec.json.decode(row.about, type=NodeAbout),
        live=msgspec.json.decode(row.live, type=NodeLive),
    )


def _to_pool(row: AnyRow, nodes: tuple[PoolNode, ...], facts: dict[str, Fact]) -> Pool:
    spec = msgspec.structs.replace(spec_of(row), place=FactChanges.of(facts).place)
    about = msgspec.json.decode(row.description, type=Description) if row.description else _MISSING
    return Pool(
        id=PoolId(row.id),
        spec=spec,
        state=PoolState(row.state),
        reason=row.reason,
        drained=row.drained,
        engine=about.engine,
        engine_version=about.version,
        powers=tuple(sorted({*about.powers, *about.permits})),
        missing=about.missing,
        isolation=about.isolation if about.engine else "",
        limits=about.limits,
        network_metered=about.network_metered,
        guards=about.guards,
        added_at=row.added_at,
        seen_at=row.seen_at,
        nodes=nodes,
        notices=msgspec.json.decode(row.notices, type=tuple[str, ...]),
        account=msgspec.json.decode(row.account, type=Account) if row.account else None,
        catalogue=msgspec.json.decode(row.catalogue, type=Catalogue) if row.catalogue else None,
        facts=facts,
    )
