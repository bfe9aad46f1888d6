"""Know plugins, their processes and cordoned nodes."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Apply this step."""
    op.create_table(
        "plugin_instance",
        sa.Column("plugin", sa.String(length=64), nullable=False),
        sa.Column("instance", sa.String(length=128), nullable=False),
        sa.Column("manifest", sa.LargeBinary(), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("certificate", sa.Text(), nullable=False),
        sa.Column("sealed_token", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("registered_at", sa.Float(), nullable=False),
        sa.Column("heartbeat_at", sa.Float(), nullable=False),
        sa.Column("dismissed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("plugin", "instance", name=op.f("pk_plugin_instance")),
    )
    op.create_table(
        "plugin_process",
        sa.Column("instance", sa.String(length=128), nullable=False),
        sa.Column("plugin", sa.String(length=64), nullable=False),
        sa.Column("directory", sa.Text(), nullable=False),
        sa.Column("manifest", sa.LargeBinary(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("sealed_key", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("start_ticks", sa.BigInteger(), nullable=True),
        sa.Column("restarts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("not_before", sa.Float(), server_default="0", nullable=False),
        sa.Column("leaving_since", sa.Float(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("added_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("instance", name=op.f("pk_plugin_process")),
    )
    op.create_index(op.f("ix_plugin_process_plugin"), "plugin_process", ["plugin"], unique=False)
    op.create_table(
        "plugin_cordon",
        sa.Column("node_id", sa.String(length=200), nullable=False),
        sa.Column("pool_id", sa.String(length=40), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pool_id"], ["plugin_pool.id"], name=op.f("fk_plugin_cordon_pool_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("node_id", name=op.f("pk_plugin_cordon")),
    )
    op.create_index(op.f("ix_plugin_cordon_pool_id"), "plugin_cordon", ["pool_id"], unique=False)
    op.add_column("plugin_pool", sa.Column("account", sa.LargeBinary(), nullable=True))
    op.add_column("plugin_pool", sa.Column("catalogue", sa.LargeBinary(), nullable=True))
