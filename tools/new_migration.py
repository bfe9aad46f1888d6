"""Write the next migration from the difference between the tables in the code and a fresh database."""

import sys
import tempfile
from pathlib import Path

from alembic import command

import yunhe.runtime.start
from yunhe.storage.database import Database
from yunhe.storage.migrate import configuration


def main() -> None:
    """Bring an empty SQLite to the newest migration, compare, and write what is missing."""
    message = " ".join(sys.argv[1:]) or "change the schema"
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'fresh.db'}")
        with database.engine.begin() as connection:
            config = configuration(connection)
            command.upgrade(config, "head")
            command.revision(config, message=message, autogenerate=True, rev_id=_next_number())
        database.close()


def _next_number() -> str:
    versions = Path(yunhe.runtime.start.__file__).parent.parent / "storage" / "migrations" / "versions"
    return f"{len(list(versions.glob('0*.py'))) + 1:04d}"


if __name__ == "__main__":
    main()
