"""`manage.py migrate` for the ledger in a database of Django: it runs Redrive's own migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections, router, transaction
from django.db.migrations.operations.base import Operation
from django.tasks import task_backends
from django.tasks.exceptions import InvalidTaskBackend

from ..core.lazy import deferred
from ..ledger.open import open_ledger
from .database import DjangoDatabase
from .project import find_project

if TYPE_CHECKING:
    from ..ledger.db import tables
else:  # they need SQLAlchemy
    (tables,) = deferred("redrive.ledger.db", "tables")

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
        _create_in_memory(alias)
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


def _create_in_memory(alias: str) -> None:
    """Create the tables in a database in memory, which only Django's own connection can reach."""
    with open_ledger("sqlite://") as ledger, ledger.connections.write.use() as session:
        statements = list(session.raw.iterdump())[1:-1]  # without BEGIN and COMMIT
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        for statement in statements:
            if "sqlite_sequence" not in statement:  # a table of SQLite itself
                cursor.execute(statement)


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
