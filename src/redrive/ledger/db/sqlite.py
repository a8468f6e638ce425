"""Connections to SQLite: durable, patient with other writers."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, NullPool, create_engine

from ...errors import LedgerError, LedgerUnavailable
from .address import migration
from .session import Session

BUSY_SECONDS = 30.0
"""How long to wait for another writer."""
OLDEST = (3, 35, 0)
"""The first with RETURNING."""
PRIVATE = 0o600
"""Mode of a new ledger file: payloads are in it."""
EFFECTIVE = os.access in os.supports_effective_ids


def connect(file: str, /, *, create: bool) -> sqlite3.Connection:
    """A connection in autocommit. `create`: a file that is missing is made; else it is an error, and nothing is made."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise LedgerError(f"SQLite {sqlite3.sqlite_version} is too old; a ledger needs {'.'.join(map(str, OLDEST))} or later")
    if file and _left_alone(file):
        # A new file would share this write-ahead log with the programs that still use the old one, and be corrupted.
        raise LedgerError(missing(file))
    if create and file:
        _make_private(file)
    target = f"{Path(file).as_uri()}?mode={'rwc' if create else 'rw'}" if file else ":memory:"
    try:
        # Threads take turns at it, see Pool; sqlite3 itself cannot know that.
        connection = sqlite3.connect(
            target, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=bool(file), cached_statements=200
        )
        try:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
    except sqlite3.OperationalError as error:
        here = LedgerUnavailable if not file or identity(file) is not None else LedgerError
        raise here(_why(file, create, error)) from error
    except sqlite3.DatabaseError as error:
        raise LedgerError(f"{file} is not a SQLite database: {error}") from error
    return connection


def _make_private(file: str) -> None:
    """Make a new file for its owner alone; SQLite gives its write-ahead log the same mode. Others keep theirs."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
    except OSError:
        pass  # it is there already; or it cannot be made, which SQLite says next


def missing(file: str, /) -> str:
    """Describe a ledger file that was removed or moved while in use, and how to recover."""
    if not _left_alone(file):
        return (
            f"{file} was removed or moved while in use; stop all programs that use it, then restore the file from a backup; "
            "without a backup its jobs are lost"
        )
    return (
        f"{file} is missing, but {file}-wal exists, so the ledger was removed or moved while in use; "
        "stop all programs that use it, then move the file back; if it was deleted, "
        f"remove {file}-wal and {file}-shm and restore a backup; without a backup its jobs are lost"
    )


def _left_alone(file: str) -> bool:
    """Whether the write-ahead log is there without its file."""
    try:
        return not Path(file).exists() and Path(f"{file}-wal").exists()
    except PermissionError:
        return False  # that is said in its own words


def _why(file: str, create: bool, error: sqlite3.OperationalError) -> str:
    """Why it cannot be opened, in more words than SQLite has for it."""
    if not file:
        return f"SQLite cannot be opened: {error}"
    there = Path(file)
    try:
        there.stat()
    except PermissionError:
        return f"{file} cannot be opened: this user cannot access its folder"
    except OSError:
        pass  # it is not there
    if not there.parent.is_dir():
        return f"{file} cannot be opened: the folder {there.parent} does not exist; create it"
    if not create and not there.exists():
        return f"no ledger at {file}; create it with {migration(f'sqlite:///{file}')}"
    if there.is_dir():
        return f"{file} cannot be opened: it is a folder; use the address of a file"
    if not all(os.access(path, os.W_OK, effective_ids=EFFECTIVE) for path in (there.parent, there) if path.exists()):
        return f"{file} cannot be opened: this user must be able to write to it, and to its folder"
    return f"{file} cannot be opened: {error}"


def durable(session: Session, /) -> None:
    """Write ahead: readers and the writer don't wait for each other. Kept in the file, so said once it is known to be ours."""
    # To set the mode that it has already would wait for a transaction that is writing, which may be the caller's own.
    if session.raw.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        session.raw.execute("PRAGMA journal_mode=WAL")


def engine(file: str, /, *, create: Callable[[], bool]) -> Engine:
    """SQLAlchemy around such connections; it opens none by itself. `create` is asked for each connection."""
    return create_engine(
        "sqlite://", creator=lambda: connect(file, create=create()), poolclass=NullPool, isolation_level="AUTOCOMMIT"
    )


def file_of(session: Session, /) -> str:
    """The file as SQLite itself names it; empty in memory."""
    return next(str(row[2]) for row in session.raw.execute("PRAGMA database_list").fetchall() if row[1] == "main")


def identity(file: str, /) -> tuple[int, int] | None:
    """Which file has this name now; None: there is none, or the ledger is in memory."""
    if not file:
        return None
    try:
        found = os.stat(file)  # noqa: PTH116  # for each write: a Path costs three times that
    except OSError:
        return None
    return found.st_dev, found.st_ino
