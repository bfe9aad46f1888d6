"""Tables of plugins: pools and their nodes."""

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.control.plugins.model import Pool, PoolNode, PoolSpec, PoolState
from yunhe.infrastructure.contract.model import Description, Inventory, Isolation
from yunhe.kernel.errors import NotFoundError
from yunhe.kernel.ids import NodeId, PoolId, ProjectId
from yunhe.kernel.resources import Resources
from yunhe.kernel.validation import nearest
from yunhe.storage.database import AnyRow, json_column, metadata
from yunhe.storage.leases import lease_columns

POOLS = sa.Table(
    "plugin_pool",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    json_column("spec"),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("description", sa.LargeBinary),
    sa.Column("added_at", sa.Float, nullable=False),
    sa.Column("seen_at", sa.Float),
    json_column("notices", server_default="[]"),
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
)

_MISSING = Description(engine="", version="")


def node_id(pool_id: PoolId, engines_own: str) -> NodeId:
    """Return a node's ID on this platform: the engine's own name for it, made unique by its pool."""
    return NodeId(f"{pool_id}/{engines_own}")


def engines_own(node: NodeId) -> NodeId:
    """Return what the engine calls a node."""
    return NodeId(node.partition("/")[2])


def read_pools(connection: Connection, where: sa.ColumnElement[bool] | None = None) -> tuple[Pool, ...]:
    """Return pools with their nodes, by name."""
    query = sa.select(POOLS).order_by(POOLS.c.name)
    if where is not None:
        query = query.where(where)
    nodes: dict[str, list[PoolNode]] = {}
    for row in connection.execute(sa.select(NODES).order_by(NODES.c.id)):
        nodes.setdefault(row.pool_id, []).append(_to_node(row))
    return tuple(_to_pool(row, tuple(nodes.get(row.id, ()))) for row in connection.execute(query))


def read_pool(connection: Connection, name_or_id: str) -> Pool:
    """Return one pool by its name or ID."""
    found = read_pools(connection, (POOLS.c.name == name_or_id) | (POOLS.c.id == name_or_id))
    if not found:
        meant = nearest(name_or_id, list(connection.scalars(sa.select(POOLS.c.name))))
        hint = f"Did you mean {meant}? " if meant else ""
        raise NotFoundError(f"There is no pool {name_or_id}.", remedy=f"{hint}List them: yunhe pool ls.")
    return found[0]


def write_seen(
    connection: Connection, pool_id: PoolId, seen: tuple[Description, Inventory, tuple[str, ...]], now: float
) -> None:
    """Note what an engine just said of itself; its nodes are replaced whole."""
    description, inventory, notices = seen
    if description.isolation is Isolation.ONE_PROJECT:
        _dedicate(connection, pool_id)
    connection.execute(
        POOLS.update()
        .where(POOLS.c.id == pool_id)
        .values(
            description=msgspec.json.encode(description),
            seen_at=now,
            notices=msgspec.json.encode(notices),
            reason="",
            state=sa.case(
                (POOLS.c.state == PoolState.DRAINING, PoolState.DRAINING.value), else_=PoolState.READY.value
            ),
        )
    )
    connection.execute(NODES.delete().where(NODES.c.pool_id == pool_id))
    for node in inventory.nodes:
        connection.execute(
            NODES.insert().values(
                id=node_id(pool_id, node.id),
                pool_id=pool_id,
                total=msgspec.json.encode(node.total),
                used=msgspec.json.encode(node.used),
                ready=node.ready,
                reason=node.reason,
                seen_at=inventory.taken_at,
            )
        )


def _dedicate(connection: Connection, pool_id: PoolId) -> None:
    """Give a pool that cannot keep projects apart to one of them: the default one, unless the operator named another."""
    row = connection.execute(sa.select(POOLS.c.spec).where(POOLS.c.id == pool_id)).one()
    spec = msgspec.json.decode(row.spec, type=PoolSpec)
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


def _to_node(row: AnyRow) -> PoolNode:
    return PoolNode(
        id=NodeId(row.id),
        pool_id=PoolId(row.pool_id),
        total=msgspec.json.decode(row.total, type=Resources),
        used=msgspec.json.decode(row.used, type=Resources),
        ready=row.ready,
        reason=row.reason,
        seen_at=row.seen_at,
    )


def _to_pool(row: AnyRow, nodes: tuple[PoolNode, ...]) -> Pool:
    about = msgspec.json.decode(row.description, type=Description) if row.description else _MISSING
    return Pool(
        id=PoolId(row.id),
        spec=msgspec.json.decode(row.spec, type=PoolSpec),
        state=PoolState(row.state),
        reason=row.reason,
        engine=about.engine,
        engine_version=about.version,
        powers=tuple(sorted(about.powers)),
        missing=about.missing,
        isolation=about.isolation if about.engine else "",
        limits=about.limits,
        network_metered=about.network_metered,
        added_at=row.added_at,
        seen_at=row.seen_at,
        nodes=nodes,
        notices=msgspec.json.decode(row.notices, type=tuple[str, ...]),
    )
