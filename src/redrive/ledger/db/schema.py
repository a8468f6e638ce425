"""The schema version of a ledger: read, check and migrate it."""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, inspect, literal_column, select, table
from sqlalchemy.exc import DBAPIError

from ...errors import LedgerError, SchemaMismatch
from ..failpoint import crash_point
from . import access_tables as _access  # noqa: F401  # so that METADATA has all tables
from . import job_tables as _jobs  # noqa: F401
from . import partition_tables as _partitions  # noqa: F401
from .address import migrate_command, migration
from .session import NO_LIMIT, Session
from .tables import HEAD, METADATA, VERSION_TABLE

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MIGRATIONS = Path(__file__).parent / "migrations"
DENIED, NO_COLUMN = "42501", "42703"
"""SQLSTATE of Postgres."""
MIGRATION_LOCK = 0x7265647269766531
"""Advisory lock of Postgres, so that programs that start together do not migrate together."""
MIGRATION_SECONDS = 5.0
"""How long to wait for another writer of a SQLite file. It may be the caller, who waits for us."""


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None], /) -> bool:
    """Exclude the ledger's tables from your own Alembic autogenerate.

    Pass it in your `env.py`: `context.configure(..., include_name=redrive.ledger.include_name)`. Or
    call it from your own function. The ledger's tables have their own migrations and version table.

    Args:
        name: Name of the object in the database.
        type_: `"table"`, `"column"`, `"index"` and others.
        parent_names: Names of its table and schema.

    Returns:
        False for the ledger's tables and everything in them.
    """
    table_name = name if type_ == "table" else parent_names.get("table_name")
    return table_name != VERSION_TABLE and table_name not in METADATA.tables


def revision(connection: Connection, /) -> str | None:
    """Return the revision of the ledger in this database. None: no ledger exists.

    Raises:
        SchemaMismatch: The tables belong to another program.
    """
    tables = set(inspect(connection).get_table_names())
    ours = tables & set(METADATA.tables)
    if VERSION_TABLE not in tables:
        if ours:
            names = ", ".join(sorted(ours))
            raise SchemaMismatch(
                f"tables with the names of the ledger belong to another program: {names}"
            )
        return None
    try:
        query: Select[Any] = select(literal_column("version_num")).select_from(table(VERSION_TABLE))
        versions: Sequence[object] = connection.execute(query).scalars().all()
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        if state == DENIED:
            raise LedgerError(
                f"this user may not read {VERSION_TABLE}: "
                "GRANT SELECT, INSERT, UPDATE, DELETE on the tables redrive_* to it"
            ) from error
        if state == NO_COLUMN or "no such column" in str(error.orig):
            raise SchemaMismatch(
                f"the table {VERSION_TABLE} belongs to another program: {error.orig}"
            ) from error
        raise
    if not versions:
        return None if not ours else _reject_foreign("none")
    if len(versions) > 1 or not re.fullmatch(r"\d{4}", str(versions[0])):
        return _reject_foreign(", ".join(map(str, versions)))
    return str(versions[0])


def _reject_foreign(revision_: str) -> str:
    raise SchemaMismatch(
        f"the database has the revision {revision_}, which this code does not know; "
        "it belongs to another program"
    )


def check(connection: Connection, shown: str, /) -> None:
    """Raise SchemaMismatch unless the schema is exactly the one of this code."""
    current = revision(connection)
    if current is None:
        raise SchemaMismatch(
            f"no ledger at {shown}; create it with {migration(shown)}", wanted=HEAD
        )
    if current < HEAD:
        raise SchemaMismatch(
            f"the ledger at {shown} is older (revision {current}) than this code ({HEAD}); "
            f"upgrade it with {migration(shown)}",
            found=current,
            wanted=HEAD,
        )
    if current > HEAD:
        raise _newer(f"the ledger at {shown}", current)


def _newer(ledger: str, current: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"{ledger} is newer (revision {current}) than this code ({HEAD}); install a newer redrive",
        found=current,
        wanted=HEAD,
    )


def migrate(session: Session, to: str = HEAD, /, *, shown: str) -> None:
    """Migrate the tables to a revision, up or down, in one transaction.

    Takes no lock if the tables have that revision: the caller's own transaction may hold the write
    lock of a SQLite file.

    Args:
        session: A session without a transaction.
        to: The revision, or "base".
        shown: The ledger's address without its password, for messages.
    """
    current = revision(session.core)
    if current == to:
        return
    if current is not None and current > HEAD:
        raise _newer("the ledger here", current)
    _silence_alembic()
    from alembic import command  # noqa: PLC0415  # 100 ms that only a migration needs
    from alembic.config import Config  # noqa: PLC0415

    _begin(session, shown)
    try:
        session.lock(MIGRATION_LOCK)
        current = revision(session.core)  # another program may have been first
        with _migration_scripts() as folder:
            config = Config()
            config.set_main_option("script_location", str(folder).replace("%", "%%"))
            config.attributes["ledger"] = {
                "connection": session.core,
                "target_metadata": METADATA,
                "version_table": VERSION_TABLE,
            }
            if to == "base" or (current is not None and to < current):
                command.downgrade(config, to)
            elif to != current:
                command.upgrade(config, to)
        if to == "base":
            session.raw.execute(f"DROP TABLE IF EXISTS {VERSION_TABLE}")
        crash_point("migrate.before_commit")
        session.raw.execute("COMMIT")
        session.expect_answer()
    except BaseException as error:
        session.expect_answer()
        session.undo()
        if _is_denied(error):
            raise LedgerError(_missing_rights(session.sqlite, shown)) from error
        raise
    crash_point("migrate.after_commit")


@contextmanager
def _migration_scripts() -> Iterator[Path]:
    """Yield the folder with Alembic's files. Alembic does not read a zip, so it is unpacked."""
    if MIGRATIONS.is_dir():
        yield MIGRATIONS
        return
    with TemporaryDirectory(prefix="redrive-") as folder:
        _unpack(files(__package__) / MIGRATIONS.name, Path(folder))
        yield Path(folder)


def _unpack(packed: Traversable, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for entry in packed.iterdir():
        if entry.is_dir():
            _unpack(entry, folder / entry.name)
        else:
            (folder / entry.name).write_bytes(entry.read_bytes())


def _silence_alembic() -> None:
    """Keep Alembic's records out of the program's log, unless the program sets a level."""
    names = ("alembic.runtime.migration", "alembic.runtime", "alembic")
    if all(logging.getLogger(name).level == logging.NOTSET for name in names):
        logging.getLogger("alembic").setLevel(logging.WARNING)


def _missing_rights(sqlite: bool, shown: str) -> str:
    if sqlite:
        return (
            f"{shown}: the file cannot be written to; this user must be able to write to it and to "
            "its folder, and the disk must not be mounted read-only"
        )
    return (
        f"{shown}: this user may not create or change the ledger's tables; GRANT CREATE on the "
        "schema to it (it must own the tables of an older ledger), or set PGUSER to the owner of "
        f"the tables and run `{migrate_command(shown, user=False)}`. "
        "For everything else it needs SELECT, INSERT, UPDATE and DELETE on redrive_*"
    )


def _begin(session: Session, shown: str) -> None:
    if not session.sqlite:
        session.raw.execute("BEGIN")
        # Another program may be migrating, and the index of a large table takes long.
        session.allow(NO_LIMIT)
        return
    try:
        with session.busy_timeout(int(MIGRATION_SECONDS * 1000)):
            session.raw.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        raise LedgerError(
            f"{shown}: the ledger's tables cannot be created or upgraded, because another "
            f"transaction has been writing to the file for {MIGRATION_SECONDS:g} s; if it is your "
            f"own (`tx=`), open the ledger before it begins: `app.ledger`, or {migration(shown)}"
        ) from error


def _is_denied(error: BaseException) -> bool:
    driver_error = getattr(error, "orig", None) or error
    is_denied = getattr(driver_error, "sqlstate", None) == DENIED
    return is_denied or "readonly database" in str(driver_error)
