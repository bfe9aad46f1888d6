"""Keep what decisions were made on."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Apply this step."""
    op.create_table(
        "orchestration_round",
        sa.Column("chain", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("world", sa.LargeBinary(), nullable=False),
        sa.Column("reserved", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "number", name=op.f("pk_orchestration_round")),
    )
