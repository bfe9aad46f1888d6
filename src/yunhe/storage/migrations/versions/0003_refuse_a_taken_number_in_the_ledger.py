"""Refuse a taken number in the ledger, also to those who would replace its line."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Apply this step.

    SQLite deletes what INSERT OR REPLACE replaces without asking the trigger on DELETE, by the number or by its own
    ``rowid``. PostgreSQL knows no such statement, and what it does on a conflict is an UPDATE, which is refused.
    """
    if op.get_context().dialect.name != "sqlite":
        return
    op.execute(
        "CREATE TRIGGER trade_ledger_no_replace BEFORE INSERT ON trade_ledger "
        "WHEN EXISTS (SELECT 1 FROM trade_ledger WHERE seq = NEW.seq OR rowid = NEW.rowid) "
        "BEGIN SELECT RAISE(ABORT, 'trade_ledger is append-only'); END"
    )
