"""Know where keys come from and what they are good for, and where plugins may be started from."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Apply this step."""
    for column in (
        sa.Column("parent_id", sa.String(length=40), server_default="", nullable=False),
        sa.Column("scope", sa.Text(), server_default="{}", nullable=False),
        sa.Column("rotated_at", sa.Float()),
        sa.Column("previous_digest", sa.String(length=64)),
        sa.Column("overlap_until", sa.Float()),
    ):
        op.add_column("account_key", column)
    op.create_index(op.f("ix_account_key_parent_id"), "account_key", ["parent_id"])
    op.create_index(op.f("ix_account_key_previous_digest"), "account_key", ["previous_digest"], unique=True)
    op.add_column("plugin_process", sa.Column("uid", sa.Integer()))
    op.create_table(
        "plugin_folder",
        sa.Column("directory", sa.Text(), nullable=False),
        sa.Column("allowed_at", sa.Float(), nullable=False),
        sa.Column("allowed_by", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("directory", name=op.f("pk_plugin_folder")),
    )
