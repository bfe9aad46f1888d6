"""Keep what an operator wants of a pool apart from whether it answers."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Apply this step."""
    op.add_column(
        "plugin_pool", sa.Column("drained", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    pools = sa.table(
        "plugin_pool",
        sa.column("state", sa.String),
        sa.column("reason", sa.Text),
        sa.column("drained", sa.Boolean),
    )
    # Whether those that were drained answer, the next looks tell.
    op.execute(
        pools.update().where(pools.c.state == "draining").values(state="ready", reason="", drained=True)
    )
