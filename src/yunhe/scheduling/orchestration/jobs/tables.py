"""Tables of orchestration: jobs, their allocations, and the output brought home."""

import sqlalchemy as sa

from yunhe.storage.database import json_column, metadata
from yunhe.storage.leases import lease_columns

JOBS = sa.Table(
    "orchestration_job",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("submitted_by", sa.String(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("submitted_at", sa.Float, nullable=False),
    sa.Column("started_at", sa.Float),
    sa.Column("ended_at", sa.Float),
    sa.Column("exit_code", sa.Integer),
    json_column("job_order"),
    sa.Column("shape", sa.String(32), nullable=False),  # jobs of one shape wait for the same thing
    sa.Column("due_at", sa.Float, nullable=False, server_default="0"),  # neither placed nor finished before
    sa.Column("retries_left", sa.Integer, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("allocation_id", sa.String(40)),
    json_column("avoid_pools", server_default="[]"),
    sa.Column("decision", sa.LargeBinary),
    sa.Column("decided_at", sa.Float),
    sa.Column("stop_requested", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("resize_to", sa.LargeBinary),
    sa.Column("resize_problem", sa.Text, nullable=False, server_default=""),
    sa.Column("outputs_blob", sa.String(200)),
    *lease_columns(),
    sa.Index("ix_orchestration_job_state_id", "state", "id"),
    sa.Index("ix_orchestration_job_project_id_id", "project_id", "id"),
    sa.Index("ix_orchestration_job_lease_owner", "lease_owner"),
    # For quotas, which count what is not over, and for retention, which looks for what ended long ago.
    sa.Index("ix_orchestration_job_project_id_ended_at_state", "project_id", "ended_at", "state"),
)
WAITS = sa.Table(
    "orchestration_wait",  # why jobs of a shape wait: one row serves ten thousand of them
    metadata,
    sa.Column("shape", sa.String(32), primary_key=True),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
)
ALLOCATIONS = sa.Table(
    "orchestration_allocation",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("job_id", sa.ForeignKey("orchestration_job.id"), nullable=False, index=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("pool_id", sa.String(40), nullable=False),
    sa.Column("pool_name", sa.String(64), nullable=False),
    sa.Column("node_id", sa.String(200), nullable=False),
    sa.Column("state", sa.String(16), nullable=False, index=True),
    json_column("resources"),
    sa.Column("group_names", sa.Text, nullable=False, server_default=""),  # names with commas between
    json_column("held"),  # what it takes from its node: during a resize the larger of before and after
    sa.Column("started_at", sa.Float),
    sa.Column("ended_at", sa.Float),
    sa.Column("exit_code", sa.Integer),
    sa.Column("ending", sa.String(16), nullable=False, server_default=""),
    sa.Column("detail", sa.Text, nullable=False, server_default=""),
    json_column("meters"),
    sa.Column("log_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("log_lost", sa.Text, nullable=False, server_default=""),
    sa.Column("outputs_lost", sa.Text, nullable=False, server_default=""),
    sa.Column("clock_off_s", sa.Float),
    sa.Column("release_due_at", sa.Float, nullable=False, server_default="0"),
)
NODES = sa.Table(
    "orchestration_node",  # a row to lock while room on a node is given out
    metadata,
    sa.Column("id", sa.String(200), primary_key=True),
)
ROUNDS = sa.Table(
    "orchestration_round",  # what decisions were made on, so that they can be explained when somebody asks
    metadata,
    sa.Column("chain", sa.String(40), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),  # 0 holds a whole snapshot, others what changed
    sa.Column("world", sa.LargeBinary, nullable=False),
    sa.Column("reserved", sa.LargeBinary, nullable=False),  # by each decision, in their order
)
PRUNED = sa.Table(
    "orchestration_pruned",  # the newest job that has been removed, so that who asks for one is told
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("job_id", sa.String(40), nullable=False),
)
LOGS = sa.Table(
    "orchestration_log",
    metadata,
    sa.Column("allocation_id", sa.String(40), primary_key=True),
    sa.Column("start", sa.BigInteger, primary_key=True),
    sa.Column("size_bytes", sa.Integer, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
