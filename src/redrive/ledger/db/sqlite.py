"""Connections to SQLite files, and their maintenance."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, NullPool, create_engine

from ...errors import LedgerError, LedgerUnavailable
from .address import migration
from .session import Session

BUSY_SECONDS = 30.0
"""How long to wait for another writer."""
MIN_VERSION = (3, 35, 0)
"""The first with RETURNING."""
FILE_MODE = 0o600
"""Mode of a new ledger file, because it holds payloads."""
EFFECTIVE_IDS = os.access in os.supports_effective_ids


def connect(file: str, /, *, create: bool, synced: bool = True) -> sqlite3.Connection:
    """Open a connection in autocommit.

    Args:
        file: Path of the file. Empty: in memory.
        create: Create a missing file. If False, a missing file is an error.
        synced: Sync each commit to the disk. False for a file that is deleted after a test.
    """
    if sqlite3.sqlite_version_info < MIN_VERSION:
        needed = ".".join(map(str, MIN_VERSION))
        raise LedgerError(
            f"SQLite {sqlite3.sqlite_version} is too old; a ledger needs {needed} or later"
        )
    if file and _has_orphaned_log(file):
        # A new file would share this write-ahead log with programs that still use the old file,
        # and be corrupted.
        raise LedgerError(missing(file))
    if create and file:
        _create_private(file)
    target = f"{Path(file).as_uri()}?mode={'rwc' if create else 'rw'}" if file else ":memory:"
    try:
        # The pool gives a connection to one thread at a time, so sqlite3 need not check.
        connection = sqlite3.connect(
            target,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            uri=bool(file),
            cached_statements=200,
        )
        try:
            connection.execute(f"PRAGMA synchronous={'FULL' if synced else 'OFF'}")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
    except sqlite3.OperationalError as error:
        exists = not file or identity(file) is not None
        error_type = LedgerUnavailable if exists else LedgerError
        raise error_type(_explain(file, create, error)) from error
    except sqlite3.DatabaseError as error:
        raise LedgerError(f"{file} is not a SQLite database: {error}") from error
    return connection


def _create_private(file: str) -> None:
    """Create a new file for its owner only. SQLite gives its write-ahead log the same mode."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
    except OSError:
        pass  # it exists, or SQLite reports next why it cannot be created


def missing(file: str, /) -> str:
    """Describe a ledger file that was removed or moved while in use, and how to recover."""
    if not _has_orphaned_log(file):
        return (
            f"{file} was removed or moved while in use; stop all programs that use it, then "
            "restore the file from a backup; without a backup its jobs are lost"
        )
    return (
        f"{file} is missing, but {file}-wal exists, so the ledger was removed or moved while in "
        "use; stop all programs that use it, then move the file back; if it was deleted, "
        f"remove {file}-wal and {file}-shm and restore a backup; without a backup its jobs are lost"
    )


def _has_orphaned_log(file: str) -> bool:
    """Return whether the write-ahead log exists without its file."""
    try:
        return not Path(file).exists() and Path(f"{file}-wal").exists()
    except PermissionError:
        return False  # `_explain` reports it


def _explain(file: str, create: bool, error: sqlite3.OperationalError) -> str:
    """Say why a file cannot be opened. SQLite itself says little."""
    if not file:
        return f"SQLite cannot be opened: {error}"
    path = Path(file)
    try:
        path.stat()
    except PermissionError:
        return f"{file} cannot be opened: this user cannot access its folder"
    except OSError:
        pass  # it does not exist
    if not path.parent.is_dir():
        return f"{file} cannot be opened: the folder {path.parent} does not exist; create it"
    if not create and not path.exists():
        return f"no ledger at {file}; create it with {migration(f'sqlite:///{file}')}"
    if path.is_dir():
        return f"{file} cannot be opened: it is a folder; use the address of a file"
    existing = (each for each in (path.parent, path) if each.exists())
    if not all(os.access(each, os.W_OK, effective_ids=EFFECTIVE_IDS) for each in existing):
        return f"{file} cannot be opened: this user must be able to write to it, and to its folder"
    return f"{file} cannot be opened: {error}"


def use_write_ahead_log(session: Session, /) -> None:
    """Set the journal mode in which readers and the writer do not block each other.

    It is stored in the file, so call this once the file is known to be a ledger.
    """
    # Setting the current mode again would wait for a writer, which may be the caller itself.
    deadline = time.monotonic() + BUSY_SECONDS
    while session.raw.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            session.raw.execute("PRAGMA journal_mode=WAL")
            return  # a database in memory keeps its own mode
        except sqlite3.OperationalError as error:
            # SQLite does not wait here if another program changes the mode at the same time.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def engine(file: str, /, *, create: Callable[[], bool], synced: bool = True) -> Engine:
    """Return SQLAlchemy's engine around such connections. It opens none by itself.

    Args:
        file: Path of the file.
        create: Returns whether to create a missing file. Called for each connection.
        synced: Sync each commit to the disk.
    """
    return create_engine(
        "sqlite://",
        creator=lambda: connect(file, create=create(), synced=synced),
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
    )


def file_of(session: Session, /) -> str:
    """Return the path of the file as SQLite has it. Empty in memory."""
    databases = session.raw.execute("PRAGMA database_list").fetchall()
    return next(str(row[2]) for row in databases if row[1] == "main")


def identity(file: str, /) -> tuple[int, int] | None:
    """Return the device and inode of a file. None: it does not exist, or the path is empty."""
    if not file:
        return None
    try:
        status = os.stat(file)  # noqa: PTH116  # runs for each write: a Path costs three times that
    except OSError:
        return None
    return status.st_dev, status.st_ino


def overwrite_deleted(session: Session, /) -> None:
    """Overwrite deleted content from now on. Does nothing on Postgres."""
    if session.sqlite:
        session.raw.execute("PRAGMA secure_delete = ON")


def compact(session: Session, /) -> str | None:
    """Remove deleted content from free pages and the write-ahead log. Does nothing on Postgres.

    Returns:
        The problem, if another program prevents it.
    """
    if not session.sqlite:
        return None
    try:
        session.raw.execute("VACUUM")
        is_blocked = session.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.OperationalError:
        is_blocked = 1
    if is_blocked:
        return (
            "free pages and the write-ahead log of the SQLite file: another program has it open; "
            "repeat the erasure after it ends"
        )
    return None
