"""Databases: SQLSTATE (psycopg, psycopg2, asyncpg), SQLite, and SQLAlchemy around them."""

from __future__ import annotations

import re

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .look import NEVER_SENT, NO_CONNECTION, TIMEOUT, Entry, Look, read, whole, wrapping

TOO_MANY = Fault("throttled", sent=False)
STATES: dict[str, Fault] = {
    "08": TRANSIENT,
    "08001": NEVER_SENT,
    "08004": NEVER_SENT,
    "08P01": PERMANENT,
    "40": TRANSIENT,
    "40002": PERMANENT,
    "53": TRANSIENT,
    "53300": TOO_MANY,
    "55P03": TRANSIENT,
    "57P01": TRANSIENT,
    "57P02": TRANSIENT,
    "57P03": NEVER_SENT,
    "57P05": TRANSIENT,
    "58": TRANSIENT,
    "XX": UNKNOWN,
}
"""By SQLSTATE, else by its class; every other one is permanent (constraints, syntax, permissions, ...)."""
NOT_WELCOME = re.compile("authentication failed|does not exist|pg_hba|certificate|not permitted|no password", re.IGNORECASE)
"""A refused connection has no SQLSTATE, only words."""
BUSY, LOCKED, PROTOCOL = 5, 6, 15


def _postgres(error: Exception, look: Look) -> Fault:
    """By SQLSTATE. Without one an OperationalError is about the connection."""
    state = read(error, "sqlstate") or read(error, "pgcode")
    if isinstance(state, str):
        if state == "57014":  # cancelled: by its time limit, or by somebody
            return TIMEOUT if "timeout" in str(error) else PERMANENT
        return STATES.get(state) or STATES.get(state[:2], PERMANENT)
    return UNKNOWN


def _operational(error: Exception, look: Look) -> Fault:
    by_state = _postgres(error, look)
    if by_state.kind != "unknown":
        return by_state
    words = str(error)
    if read(error, "pgconn") is None and not words.startswith(("connection failed", "failed to resolve host")):
        return TRANSIENT
    return Fault("permanent", sent=False) if NOT_WELCOME.search(words) else NEVER_SENT


def _sqlite(error: Exception, look: Look) -> Fault:
    code = whole(read(error, "sqlite_errorcode"))
    if code is None:
        return TRANSIENT if re.search("database( table)? is locked", str(error)) else UNKNOWN
    return TRANSIENT if code & 0xFF in (BUSY, LOCKED, PROTOCOL) else UNKNOWN


def _wrapped(error: Exception, look: Look) -> Fault:
    broken = TRANSIENT if read(error, "connection_invalidated") is True else UNKNOWN
    return wrapping(broken, "orig", "__cause__")(error, look)


_POSTGRES: dict[str, Entry] = {
    "psycopg.Error": _postgres,
    "psycopg.OperationalError": _operational,
    "psycopg.ConnectionTimeout": NO_CONNECTION,
    "psycopg_pool.PoolTimeout": NO_CONNECTION,
    "psycopg_pool.TooManyRequests": TOO_MANY,
    "psycopg2.Error": _postgres,
    "psycopg2.OperationalError": _operational,
    "asyncpg.PostgresError": _postgres,
    **{
        f"{library}.{name}": PERMANENT
        for library in ("psycopg", "psycopg2", "sqlite3")
        for name in ("ProgrammingError", "IntegrityError", "DataError", "NotSupportedError")
    },
}
KNOWN: dict[str, Entry] = {
    **_POSTGRES,
    "sqlite3.OperationalError": _sqlite,
    "sqlalchemy.StatementError": _wrapped,
    "sqlalchemy.TimeoutError": NO_CONNECTION,
    "sqlalchemy.DisconnectionError": TRANSIENT,
    "sqlalchemy.SQLAlchemyError": UNKNOWN,
}
