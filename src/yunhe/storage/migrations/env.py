"""Alembic's entry: runs migrations on the connection it is given."""

from alembic import context

from yunhe.storage.database import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
