"""Keep on an attempt why its log or its outputs can never be brought home."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Apply this step."""
    for name in ("log_lost", "outputs_lost"):
        op.add_column(
            "orchestration_allocation", sa.Column(name, sa.Text(), server_default="", nullable=False)
        )
