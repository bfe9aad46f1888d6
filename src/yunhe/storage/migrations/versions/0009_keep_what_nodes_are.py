"""Keep what nodes are and what goes through them."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Apply this step."""
    for name in ("about", "live"):
        op.add_column("plugin_node", sa.Column(name, sa.LargeBinary(), server_default="{}", nullable=False))
