"""Keep the groups that an allocation's job belongs to."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Apply this step."""
    column = sa.Column("group_names", sa.Text(), server_default="", nullable=False)
    op.add_column("orchestration_allocation", column)
