"""What Alembic runs: the migrations, on the connection that the journal has opened."""

from __future__ import annotations

from alembic import context

from semtoken.guarantees.journal.database import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
