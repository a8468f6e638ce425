"""What Alembic runs: on the connection, and in the transaction, that it is given (see schema.py)."""

from __future__ import annotations

from alembic import context

from redrive.ledger.db.tables import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
