"""Keep facts of pools; their places become facts."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Apply this step."""
    facts = op.create_table(
        "plugin_fact",
        sa.Column("pool_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pool_id"], ["plugin_pool.id"], name=op.f("fk_plugin_fact_pool_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("pool_id", "name", name=op.f("pk_plugin_fact")),
    )
    pools = sa.table(
        "plugin_pool", sa.column("id"), sa.column("spec", sa.LargeBinary()), sa.column("added_at")
    )
    connection = op.get_bind()
    for row in connection.execute(sa.select(pools)).all():
        spec = json.loads(row.spec)
        place = spec.pop("place", None)
        if place is not None:
            body = json.dumps({"value": place, "source": "told", "at": row.added_at}).encode()
            connection.execute(facts.insert().values(pool_id=row.id, name="place", body=body))
            connection.execute(
                pools.update().where(pools.c.id == row.id).values(spec=json.dumps(spec).encode())
            )
