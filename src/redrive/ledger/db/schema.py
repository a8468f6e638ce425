"""Is this our database, and is it as new as this code? And the way there, up and down."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy import Connection, inspect, literal_column, select, table
from sqlalchemy.exc import DBAPIError

from ...errors import LedgerError, SchemaMismatch
from ..failpoint import crash_point
from . import failure_tables as _failures  # noqa: F401  # so that METADATA has all tables
from . import partition_tables as _partitions  # noqa: F401  # likewise
from .address import migrate_command, migration
from .session import NO_LIMIT, Session
from .tables import HEAD, METADATA, VERSION_TABLE

REVISIONS = tuple(sorted(path.name[:4] for path in (Path(__file__).parent / "migrations" / "versions").glob("[0-9]*.py")))
DENIED, NO_COLUMN = "42501", "42703"
"""Of Postgres."""
MIGRATION_LOCK = 0x7265647269766531
"""Of Postgres: two programs that start together don't migrate together."""
MIGRATION_SECONDS = 5.0
"""How long to wait for another writer of a SQLite file: it may be the caller's own transaction, which waits for us."""


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
    """The revision of the ledger that is here; None: there is none. SchemaMismatch where the tables are somebody else's."""
    tables = set(inspect(connection).get_table_names())
    ours = tables & set(METADATA.tables)
    if VERSION_TABLE not in tables:
        if ours:
            raise SchemaMismatch(f"tables with the names of the ledger belong to another program: {', '.join(sorted(ours))}")
        return None
    try:
        found: Sequence[object] = (
            connection.execute(select(literal_column("version_num")).select_from(table(VERSION_TABLE))).scalars().all()
        )
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        if state == DENIED:
            raise LedgerError(
                f"this user may not read {VERSION_TABLE}: GRANT SELECT, INSERT, UPDATE, DELETE on the tables redrive_* to it"
            ) from error
        if state == NO_COLUMN or "no such column" in str(error.orig):
            raise SchemaMismatch(f"the table {VERSION_TABLE} belongs to another program: {error.orig}") from error
        raise
    if not found:
        return None if not ours else _foreign("none")
    if len(found) > 1 or not re.fullmatch(r"\d{4}", str(found[0])):
        return _foreign(", ".join(map(str, found)))
    return str(found[0])


def _foreign(found: str) -> str:
    raise SchemaMismatch(f"the database has the revision {found}, which this code does not know; it belongs to another program")


def check(connection: Connection, shown: str, /) -> None:
    """Refuse whatever is not exactly the schema that this code is written for."""
    found = revision(connection)
    if found is None:
        raise SchemaMismatch(f"no ledger at {shown}; create it with {migration(shown)}", wanted=HEAD)
    if found < HEAD:
        raise SchemaMismatch(
            f"the ledger at {shown} is older (revision {found}) than this code ({HEAD}); upgrade it with {migration(shown)}",
            found=found,
            wanted=HEAD,
        )
    if found > HEAD:
        raise SchemaMismatch(
            f"the ledger at {shown} is newer (revision {found}) than this code ({HEAD}); install a newer redrive",
            found=found,
            wanted=HEAD,
        )


def migrate(session: Session, to: str = HEAD, /, *, shown: str) -> None:
    """Bring the tables to a revision, up or down, in one transaction. Takes no lock where they have it already.

    shown: the ledger's address without its password, for messages.
    """
    found = revision(session.core)
    if found == to:
        return  # the caller's own transaction may hold the one write lock of a SQLite file
    if found is not None and found > HEAD:
        raise SchemaMismatch(
            f"the ledger here is newer (revision {found}) than this code ({HEAD}); install a newer redrive",
            found=found,
            wanted=HEAD,
        )
    _silence_alembic()
    from alembic import command  # noqa: PLC0415  # 100 ms that only a migration needs
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    _begin(session, shown)
    try:
        if not session.sqlite:
            session.raw.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        found = revision(session.core)  # another program may have been first
        config.attributes["connection"] = session.core
        if to == "base" or (found is not None and to < found):
            command.downgrade(config, to)
        elif to != found:
            command.upgrade(config, to)
        if to == "base":
            session.raw.execute(f"DROP TABLE IF EXISTS {VERSION_TABLE}")
        crash_point("migrate.before_commit")
        session.raw.execute("COMMIT")
        session.expect_answer()
    except BaseException as error:
        session.expect_answer()
        session.undo()
        if _denied(error):
            raise LedgerError(_missing_rights(session.sqlite, shown)) from error
        raise
    crash_point("migrate.after_commit")


def _silence_alembic() -> None:
    """Keep Alembic's lines for each plugin and revision out of the program's log, unless the program sets a level."""
    import logging  # noqa: PLC0415  # likewise

    names = ("alembic.runtime.migration", "alembic.runtime", "alembic")
    if all(logging.getLogger(name).level == logging.NOTSET for name in names):
        logging.getLogger("alembic").setLevel(logging.WARNING)


def _missing_rights(sqlite: bool, shown: str) -> str:
    if sqlite:
        return (
            f"{shown}: the file cannot be written to; this user must be able to write to it and to its folder, and the disk "
            "must not be mounted read-only"
        )
    return (
        f"{shown}: this user may not create or change the ledger's tables; GRANT CREATE on the schema to it (it must own the "
        f"tables of an older ledger), or set PGUSER to the owner of the tables and run `{migrate_command(shown, user=False)}`. "
        "For everything else it needs SELECT, INSERT, UPDATE and DELETE on redrive_*"
    )


def _begin(session: Session, shown: str) -> None:
    if not session.sqlite:
        session.raw.execute("BEGIN")
        session.allow(NO_LIMIT)  # another program may be migrating, and an index of a large table takes its time
        return
    patience = session.raw.execute("PRAGMA busy_timeout").fetchone()[0]
    session.raw.execute(f"PRAGMA busy_timeout = {min(patience, int(MIGRATION_SECONDS * 1000))}")
    try:
        session.raw.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        raise LedgerError(
            f"{shown}: the ledger's tables cannot be created or upgraded, because another transaction has been writing to the "
            f"file for {MIGRATION_SECONDS:g} s; if it is your own (`tx=`), open the ledger before it begins: `app.ledger`, or "
            f"{migration(shown)}"
        ) from error
    finally:
        session.raw.execute(f"PRAGMA busy_timeout = {patience}")


def _denied(error: BaseException) -> bool:
    """Whether the database says that this user may not; by SQLAlchemy, or by the driver itself."""
    said = getattr(error, "orig", None) or error
    return getattr(said, "sqlstate", None) == DENIED or "readonly database" in str(said)
