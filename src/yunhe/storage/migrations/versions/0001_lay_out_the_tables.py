"""lay out the tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Apply this step."""
    op.create_table(
        "account_audit",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("key_id", sa.String(length=40), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_account_audit")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "account_project",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_project")),
    )
    op.create_table(
        "account_secret",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("updated_by", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_account_secret")),
    )
    op.create_table(
        "account_user",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_user")),
        sa.UniqueConstraint("name", name=op.f("uq_account_user_name")),
    )
    op.create_table(
        "application_submission",
        sa.Column("user_id", sa.String(length=40), nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("body_digest", sa.String(length=64), nullable=False),
        sa.Column("job_ids", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "key", name=op.f("pk_application_submission")),
    )
    op.create_table(
        "blob",
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blob")),
    )
    op.create_table(
        "blob_chunk",
        sa.Column("blob_id", sa.String(length=200), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("blob_id", "number", name=op.f("pk_blob_chunk")),
    )
    op.create_table(
        "orchestration_job",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("submitted_by", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("job_order", sa.LargeBinary(), nullable=False),
        sa.Column("shape", sa.String(length=32), nullable=False),
        sa.Column("due_at", sa.Float(), server_default="0", nullable=False),
        sa.Column("retries_left", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("allocation_id", sa.String(length=40), nullable=True),
        sa.Column("avoid_pools", sa.LargeBinary(), server_default="[]", nullable=False),
        sa.Column("decision", sa.LargeBinary(), nullable=True),
        sa.Column("decided_at", sa.Float(), nullable=True),
        sa.Column("stop_requested", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("resize_to", sa.LargeBinary(), nullable=True),
        sa.Column("resize_problem", sa.Text(), server_default="", nullable=False),
        sa.Column("outputs_blob", sa.String(length=200), nullable=True),
        sa.Column("lease_owner", sa.String(length=64), server_default="", nullable=False),
        sa.Column("lease_until", sa.Float(), server_default="0", nullable=False),
        sa.Column("lease_token", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_orchestration_job")),
    )
    op.create_index("ix_orchestration_job_lease_owner", "orchestration_job", ["lease_owner"], unique=False)
    op.create_index(
        "ix_orchestration_job_project_id_id", "orchestration_job", ["project_id", "id"], unique=False
    )
    op.create_index("ix_orchestration_job_state_id", "orchestration_job", ["state", "id"], unique=False)
    op.create_table(
        "orchestration_log",
        sa.Column("allocation_id", sa.String(length=40), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("allocation_id", "start", name=op.f("pk_orchestration_log")),
    )
    op.create_table(
        "orchestration_wait",
        sa.Column("shape", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("shape", name=op.f("pk_orchestration_wait")),
    )
    op.create_table(
        "orchestration_node",
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_orchestration_node")),
    )
    op.create_table(
        "outbox_cursor",
        sa.Column("consumer", sa.String(length=80), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("consumer", name=op.f("pk_outbox_cursor")),
    )
    op.create_table(
        "outbox_event",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("topic", sa.String(length=80), nullable=False),
        sa.Column("key", sa.String(length=80), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_outbox_event")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "perception_feed",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.BigInteger(), server_default="-1", nullable=False),
        sa.Column("lease_owner", sa.String(length=64), server_default="", nullable=False),
        sa.Column("lease_until", sa.Float(), server_default="0", nullable=False),
        sa.Column("lease_token", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_perception_feed")),
    )
    op.create_table(
        "perception_price",
        sa.Column("pool_id", sa.String(length=40), nullable=False),
        sa.Column("tiers", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("pool_id", name=op.f("pk_perception_price")),
    )
    op.create_table(
        "perception_usage",
        sa.Column("allocation_id", sa.String(length=40), nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("allocation_id", "minute", name=op.f("pk_perception_usage")),
    )
    op.create_index("ix_perception_usage_minute", "perception_usage", ["minute"], unique=False)
    op.create_table(
        "plugin_pool",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.LargeBinary(), nullable=True),
        sa.Column("added_at", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=True),
        sa.Column("notices", sa.LargeBinary(), server_default="[]", nullable=False),
        sa.Column("lease_owner", sa.String(length=64), server_default="", nullable=False),
        sa.Column("lease_until", sa.Float(), server_default="0", nullable=False),
        sa.Column("lease_token", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plugin_pool")),
        sa.UniqueConstraint("name", name=op.f("uq_plugin_pool_name")),
    )
    op.create_table(
        "trade_balance",
        sa.Column("allocation_id", sa.String(length=40), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("allocation_id", name=op.f("pk_trade_balance")),
    )
    op.create_table(
        "trade_ledger",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("pool_id", sa.String(length=40), nullable=False),
        sa.Column("tier", sa.String(length=16), nullable=False),
        sa.Column("cpu_us", sa.BigInteger(), nullable=False),
        sa.Column("memory_mib_ms", sa.BigInteger(), nullable=False),
        sa.Column("io_bytes", sa.BigInteger(), nullable=False),
        sa.Column("network_bytes", sa.BigInteger(), nullable=True),
        sa.Column("amount_micros", sa.BigInteger(), nullable=False),
        sa.Column("reserved_micros", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_trade_ledger")),
    )
    op.create_index(op.f("ix_trade_ledger_at"), "trade_ledger", ["at"], unique=False)
    op.create_index(op.f("ix_trade_ledger_job_id"), "trade_ledger", ["job_id"], unique=False)
    op.create_index(op.f("ix_trade_ledger_pool_id"), "trade_ledger", ["pool_id"], unique=False)
    op.create_index(op.f("ix_trade_ledger_project_id"), "trade_ledger", ["project_id"], unique=False)
    op.create_table(
        "trade_price",
        sa.Column("pool_id", sa.String(length=40), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("pool_id", "version", name=op.f("pk_trade_price")),
    )
    op.create_table(
        "account_key",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("user_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.Column("last_used_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["account_user.id"], name=op.f("fk_account_key_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_key")),
        sa.UniqueConstraint("digest", name=op.f("uq_account_key_digest")),
    )
    op.create_index(op.f("ix_account_key_user_id"), "account_key", ["user_id"], unique=False)
    op.create_table(
        "account_member",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=40), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["account_user.id"], name=op.f("fk_account_member_user_id")),
        sa.PrimaryKeyConstraint("project_id", "user_id", name=op.f("pk_account_member")),
    )
    op.create_table(
        "orchestration_allocation",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("pool_id", sa.String(length=40), nullable=False),
        sa.Column("pool_name", sa.String(length=64), nullable=False),
        sa.Column("node_id", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("resources", sa.LargeBinary(), nullable=False),
        sa.Column("held", sa.LargeBinary(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("ending", sa.String(length=16), server_default="", nullable=False),
        sa.Column("detail", sa.Text(), server_default="", nullable=False),
        sa.Column("meters", sa.LargeBinary(), nullable=False),
        sa.Column("log_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("release_due_at", sa.Float(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["orchestration_job.id"], name=op.f("fk_orchestration_allocation_job_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_orchestration_allocation")),
    )
    op.create_index(
        op.f("ix_orchestration_allocation_job_id"), "orchestration_allocation", ["job_id"], unique=False
    )
    op.create_index(
        op.f("ix_orchestration_allocation_state"), "orchestration_allocation", ["state"], unique=False
    )
    op.create_table(
        "plugin_node",
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("pool_id", sa.String(length=40), nullable=False),
        sa.Column("total", sa.LargeBinary(), nullable=False),
        sa.Column("used", sa.LargeBinary(), nullable=False),
        sa.Column("ready", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pool_id"], ["plugin_pool.id"], name=op.f("fk_plugin_node_pool_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plugin_node")),
    )
    op.create_index(op.f("ix_plugin_node_pool_id"), "plugin_node", ["pool_id"], unique=False)
    _make_append_only("trade_ledger")
    _make_append_only("account_audit")


def _make_append_only(table: str) -> None:
    """Let the database itself refuse to change or drop a line that was written."""
    refusal = f"{table} is append-only"
    if op.get_context().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{refusal}'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{refusal}'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse()"
    )
