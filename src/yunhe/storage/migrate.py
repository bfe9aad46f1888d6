"""Bringing a database to the schema of this version, step by step, whoever starts first."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Connection

from yunhe.storage.database import Database

_LOCK = 0x59554E4D


async def migrate(database: Database) -> None:
    """Apply every migration that this database has not seen."""
    await database.write(_upgrade)


def configuration(connection: Connection) -> Config:
    """Return alembic's configuration for a connection that is already in a transaction."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    command.upgrade(configuration(connection), "head")
