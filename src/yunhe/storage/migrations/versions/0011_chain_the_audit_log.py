"""Chain the audit log, and keep signed heads of both chains.

Lines from before join the chain in their order when the server first runs.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


COVERED = (
    "EXISTS (SELECT 1 FROM account_audit_chain, proof_head WHERE account_audit_chain.seq = OLD.seq"
    " AND proof_head.chain = 'audit-cut' AND account_audit_chain.number <= proof_head.lines)"
)


def upgrade() -> None:
    """Apply this step."""
    op.create_table(
        "account_audit_chain",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("previous", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_account_audit_chain")),
    )
    op.create_index(op.f("ix_account_audit_chain_seq"), "account_audit_chain", ["seq"], unique=True)
    op.create_table(
        "proof_key",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("public", sa.String(length=64), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proof_key")),
    )
    op.create_table(
        "proof_head",
        sa.Column("chain", sa.String(length=16), nullable=False),
        sa.Column("lines", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("chain", name=op.f("pk_proof_head")),
    )
    _let_covered_lines_go()


def _let_covered_lines_go() -> None:
    """Let the database refuse to drop a line of the audit log, but those that a cut covers."""
    if op.get_context().dialect.name == "sqlite":
        op.execute("DROP TRIGGER account_audit_no_delete")
        op.execute(
            f"CREATE TRIGGER account_audit_no_delete BEFORE DELETE ON account_audit WHEN NOT {COVERED} "
            "BEGIN SELECT RAISE(ABORT, 'account_audit is append-only'); END"
        )
        return
    op.execute("DROP TRIGGER account_audit_append_only ON account_audit")
    op.execute(
        "CREATE TRIGGER account_audit_append_only BEFORE UPDATE OR TRUNCATE ON account_audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION account_audit_refuse()"
    )
    op.execute(
        "CREATE FUNCTION account_audit_refuse_delete() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF {COVERED} THEN RETURN OLD; END IF; RAISE EXCEPTION 'account_audit is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER account_audit_no_delete BEFORE DELETE ON account_audit "
        "FOR EACH ROW EXECUTE FUNCTION account_audit_refuse_delete()"
    )
