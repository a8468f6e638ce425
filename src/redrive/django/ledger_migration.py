"""`manage.py migrate` for the ledger in a database of Django: it runs Redrive's own migrations."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from django.db import connections, router
from django.db.migrations.operations.base import Operation
from django.tasks import task_backends
from django.tasks.exceptions import InvalidTaskBackend

from ..core.lazy import Deferred, deferred
from ..ledger.open import open_ledger
from .database import DjangoDatabase
from .project import find_project

if TYPE_CHECKING:
    import sqlalchemy

    from ..ledger.db import schema, session, tables
else:  # they need SQLAlchemy
    schema, session, tables = deferred("redrive.ledger.db", "schema", "session", "tables")
    sqlalchemy = Deferred("sqlalchemy")

LABEL = "redrive"


def migrate_ledger(alias: str, /) -> None:
    """Create or upgrade the tables in a Django database, if a backend has its ledger there."""
    if alias not in ledger_databases() or not router.allow_migrate(alias, LABEL):
        return
    database = DjangoDatabase(alias)
    if database.revision() == tables.HEAD:
        return
    connection = connections[alias]
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        _migrate_in_memory(connection.settings_dict["NAME"])
    else:
        open_ledger(database.url, migrate=True).close()


def ledger_databases() -> set[str | None]:
    """Return the Django databases that have a ledger, by the settings of tasks."""
    databases = set()
    for alias in task_backends:
        try:
            options = find_project(alias).options
        except InvalidTaskBackend:  # not Redrive's, or `manage.py check` reports it
            continue
        databases.add(options.database)
    return databases - {None}


def _migrate_in_memory(name: str) -> None:
    """Migrate a database in memory, by a second connection to its shared cache."""
    engine = sqlalchemy.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(name, uri=True, isolation_level=None),
        poolclass=sqlalchemy.NullPool,
        isolation_level="AUTOCOMMIT",
    )
    opened = session.Session(engine.connect())
    try:
        schema.migrate(opened, shown="sqlite://")
    finally:
        opened.close()


class MigrateLedger(Operation):
    """Bring the ledger to the schema of this version of Redrive. It never goes back.

    Args:
        revision: The revision of Redrive for which the migration was written.
    """

    reduces_to_sql = False
    reversible = False

    def __init__(self, revision: str) -> None:
        self.revision = revision

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Change nothing: Django has no models of these tables."""

    def database_forwards(
        self, _app_label: str, schema_editor: Any, _from_state: Any, _to_state: Any
    ) -> None:
        """Run the migrations."""
        migrate_ledger(schema_editor.connection.alias)

    def describe(self) -> str:
        """Describe the operation, for `migrate --plan`."""
        return f"Create or upgrade the tables redrive_* (revision {self.revision})"
