"""Keep contents apart from archives: archives are lists of chunks, and what chunks hold may be files."""

import zlib

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

LEAST_BYTES = 4096


def upgrade() -> None:
    """Apply this step."""
    op.create_table(
        "chunk",
        sa.Column("id", sa.String(length=220), nullable=False),
        sa.Column("name", sa.String(length=220), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("refs", sa.Integer(), nullable=False),
        sa.Column("used_at", sa.Float(), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chunk")),
    )
    op.create_index(op.f("ix_chunk_name"), "chunk", ["name"], unique=False)
    op.create_index("ix_chunk_refs_used_at", "chunk", ["refs", "used_at"], unique=False)
    op.create_table(
        "blob_garbage",
        sa.Column("name", sa.String(length=220), nullable=False),
        sa.Column("due", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_blob_garbage")),
    )
    op.create_index(op.f("ix_blob_garbage_due"), "blob_garbage", ["due"], unique=False)
    op.add_column("blob", sa.Column("digest", sa.String(length=64), server_default="", nullable=False))
    op.add_column("blob", sa.Column("chunks", sa.LargeBinary(), server_default="", nullable=False))
    op.add_column("blob", sa.Column("list_bytes", sa.BigInteger(), server_default="0", nullable=False))
    _list_chunks()
    _count_again()


def _list_chunks() -> None:
    """Make chunks of the pieces that are there; an upload that was cut off has no blob, and its chunks no use."""
    connection = op.get_bind()
    pieces = "SELECT blob_id, number, length(data) AS size_bytes FROM blob_chunk ORDER BY blob_id, number"
    blobs = {row.id: row for row in connection.execute(sa.text("SELECT id, used_at, project_id FROM blob"))}
    lists: dict[str, list[str]] = {blob_id: [] for blob_id in blobs}
    chunk = sa.text(
        "INSERT INTO chunk (id, name, size_bytes, refs, used_at, project_id)"
        " VALUES (:name, :name, :size_bytes, :refs, :used_at, :project_id)"
    )
    for row in connection.execute(sa.text(pieces)).all():
        name, blob = f"{row.blob_id}/{row.number}", blobs.get(row.blob_id)
        project_id = row.blob_id.split("/")[2] if row.blob_id.startswith("upload/") else ""
        owner = {"refs": 0, "used_at": 0.0, "project_id": project_id}
        if blob is not None:
            lists[row.blob_id].append(name)
            owner = {"refs": 1, "used_at": blob.used_at, "project_id": blob.project_id}
        connection.execute(chunk, {"name": name, "size_bytes": row.size_bytes, **owner})
    own = sa.text(
        "UPDATE blob SET digest = :digest, chunks = :chunks, list_bytes = :list_bytes WHERE id = :id"
    )
    for blob_id, names in lists.items():
        digest = blob_id.rpartition("/")[2]
        packed = zlib.compress(msgspec.msgpack.encode(names), 1)
        values = {
            "digest": digest,
            "chunks": packed,
            "list_bytes": 0 if names else LEAST_BYTES,
            "id": blob_id,
        }
        connection.execute(own, values)


def _count_again() -> None:
    """Count for each project what its chunks and lists weigh."""
    connection = op.get_bind()
    connection.execute(sa.text("DELETE FROM project_use WHERE name = 'blob_bytes'"))
    connection.execute(
        sa.text(
            "INSERT INTO project_use (project_id, name, period, used)"
            " SELECT project_id, 'blob_bytes', 0, SUM(weight) FROM ("
            " SELECT project_id, CASE WHEN size_bytes < 4096 THEN 4096 ELSE size_bytes END AS weight FROM chunk"
            " UNION ALL SELECT project_id, list_bytes AS weight FROM blob) AS held"
            " WHERE project_id <> '' GROUP BY project_id"
        )
    )
