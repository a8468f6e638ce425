"""What Alembic runs: on the connection, and in the transaction, that it is given (see schema.py)."""

from __future__ import annotations

from alembic import context

# Alembic runs this file outside of its package. schema.py passes the names, because a vendored copy has another package name.
context.configure(
    **context.config.attributes["ledger"],
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
