"""What Alembic runs, on the connection that it is given."""

from alembic import context

from examples.tiles.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table="tiles_version",
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
