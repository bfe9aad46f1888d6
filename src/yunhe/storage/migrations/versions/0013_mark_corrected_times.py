"""Mark times that were corrected."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Apply this step."""
    op.add_column("orchestration_allocation", sa.Column("clock_off_s", sa.Float(), nullable=True))
