"""Bound what projects keep: their limits, what they have used, and which process removes what is old."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Apply this step."""
    op.create_table(
        "orchestration_pruned",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_orchestration_pruned")),
    )
    op.create_table(
        "project_setting",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("limits", sa.Text(), server_default="{}", nullable=False),
        sa.Column("egress", sa.Text(), server_default="null", nullable=False),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_project_setting")),
    )
    op.create_table(
        "project_use",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("period", sa.Integer(), server_default="0", nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_project_use")),
    )
    op.create_table(
        "sweep",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("lease_owner", sa.String(length=64), server_default="", nullable=False),
        sa.Column("lease_until", sa.Float(), server_default="0", nullable=False),
        sa.Column("lease_token", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweep")),
    )
    op.add_column("blob", sa.Column("project_id", sa.String(length=64), server_default="", nullable=False))
    op.create_index(op.f("ix_blob_used_at"), "blob", ["used_at"], unique=False)
    op.create_index(
        "ix_orchestration_job_project_id_ended_at_state",
        "orchestration_job",
        ["project_id", "ended_at", "state"],
        unique=False,
    )
    _count_what_is_there()


def _count_what_is_there() -> None:
    """Say whose each blob is, and count blobs and logs for their projects."""
    connection = op.get_bind()
    owners = "SELECT a.id, j.project_id FROM orchestration_allocation a JOIN orchestration_job j ON j.id = a.job_id"
    projects = {row.id: row.project_id for row in connection.execute(sa.text(owners))}
    own = sa.text("UPDATE blob SET project_id = :project WHERE id = :id")
    for (blob_id,) in connection.execute(sa.text("SELECT id FROM blob")).all():
        kind, _, rest = blob_id.partition("/")
        name = rest.rpartition("/")[0]
        project_id = name if kind == "project" else projects.get(name, "")
        connection.execute(own, {"project": project_id, "id": blob_id})
    connection.execute(
        sa.text(
            "INSERT INTO project_use (project_id, name, period, used) SELECT project_id, 'blob_bytes', 0,"
            " SUM(CASE WHEN size_bytes < 4096 THEN 4096 ELSE size_bytes END) FROM blob"
            " WHERE project_id <> '' GROUP BY project_id"
        )
    )
    connection.execute(
        sa.text(
            "INSERT INTO project_use (project_id, name, period, used) SELECT j.project_id, 'log_bytes', 0,"
            " SUM(CASE WHEN l.size_bytes < 256 THEN 256 ELSE l.size_bytes END) FROM orchestration_log l"
            " JOIN orchestration_allocation a ON a.id = l.allocation_id"
            " JOIN orchestration_job j ON j.id = a.job_id GROUP BY j.project_id"
        )
    )
