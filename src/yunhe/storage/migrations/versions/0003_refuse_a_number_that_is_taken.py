"""Refuse a number that is taken in the ledger and the audit log, also to those who would replace its line."""

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
    for table in ("trade_ledger", "account_audit"):
        op.execute(
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "  # noqa: S608 - names of our own
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE seq = NEW.seq OR rowid = NEW.rowid) "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
