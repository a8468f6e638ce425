"""Databases: Postgres, SQLite, SQLAlchemy, MySQL, MongoDB, Redis and Elasticsearch."""

from __future__ import annotations

import re
from collections.abc import Collection

from ...fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .http_responses import fault_of_status, retry_after
from .inspect import (
    NEVER_SENT,
    NEVER_SENT_PERMANENT,
    NO_CONNECTION,
    THROTTLED,
    TIMEOUT,
    TOO_MANY_CONNECTIONS,
    Entry,
    FaultReader,
    Inspector,
    as_int,
    fault_of_inner,
    frames_of,
    inner_error,
    loop_counts,
    mark_spent,
    read,
    spent_if,
)

# SQLSTATE (psycopg, psycopg2, asyncpg), SQLite, and SQLAlchemy around them.

SQL_STATES: dict[str, Fault] = {
    "08": TRANSIENT,
    "08001": NEVER_SENT,
    "08004": NEVER_SENT,
    "08P01": PERMANENT,
    "25006": TRANSIENT,  # read-only after a failover
    "40": TRANSIENT,
    "40002": PERMANENT,
    "53": TRANSIENT,
    "53300": TOO_MANY_CONNECTIONS,
    "55P03": TRANSIENT,
    "57P01": TRANSIENT,
    "57P02": TRANSIENT,
    "57P03": NEVER_SENT,
    "57P05": TRANSIENT,
    "58": TRANSIENT,
    "XX": UNKNOWN,
}
"""By SQLSTATE, or by its class. All others are permanent: constraints, syntax, permissions."""
_REFUSED_CONNECTION = re.compile(
    "authentication failed|does not exist|pg_hba|certificate|not permitted|no password",
    re.IGNORECASE,
)
"""A refused connection has no SQLSTATE, only a message."""
SQLITE_BUSY, SQLITE_LOCKED, SQLITE_PROTOCOL = 5, 6, 15


def _postgres(error: Exception, inspector: Inspector) -> Fault:
    """Classify by SQLSTATE. Unknown if there is none."""
    state = read(error, "sqlstate") or read(error, "pgcode")
    if isinstance(state, str):
        if state == "57014":  # cancelled, by a statement timeout or by a user
            return TIMEOUT if "timeout" in str(error) else PERMANENT
        return SQL_STATES.get(state) or SQL_STATES.get(state[:2], PERMANENT)
    return UNKNOWN


def _postgres_operational(error: Exception, inspector: Inspector) -> Fault:
    by_state = _postgres(error, inspector)
    if by_state.kind != "unknown":
        return by_state
    # Without a SQLSTATE, it is about the connection.
    message = str(error)
    is_connecting = message.startswith(("connection failed", "failed to resolve host"))
    if read(error, "pgconn") is None and not is_connecting:
        return TRANSIENT
    return NEVER_SENT_PERMANENT if _REFUSED_CONNECTION.search(message) else NEVER_SENT


def _sqlite(error: Exception, inspector: Inspector) -> Fault:
    code = as_int(read(error, "sqlite_errorcode"))
    if code is None:
        return TRANSIENT if re.search("database( table)? is locked", str(error)) else UNKNOWN
    return TRANSIENT if code & 0xFF in (SQLITE_BUSY, SQLITE_LOCKED, SQLITE_PROTOCOL) else UNKNOWN


def _sqlalchemy_wrapped(error: Exception, inspector: Inspector) -> Fault:
    broken = TRANSIENT if read(error, "connection_invalidated") is True else UNKNOWN
    return fault_of_inner(broken, "orig", "__cause__")(error, inspector)


_POSTGRES: dict[str, Entry] = {
    "psycopg.Error": _postgres,
    "psycopg.OperationalError": _postgres_operational,
    "psycopg.ConnectionTimeout": NO_CONNECTION,
    "psycopg_pool.PoolTimeout": NO_CONNECTION,
    "psycopg_pool.TooManyRequests": TOO_MANY_CONNECTIONS,
    "psycopg2.Error": _postgres,
    "psycopg2.OperationalError": _postgres_operational,
    "asyncpg.PostgresError": _postgres,
    **{
        f"{library}.{name}": PERMANENT
        for library in ("psycopg", "psycopg2", "sqlite3")
        for name in ("ProgrammingError", "IntegrityError", "DataError", "NotSupportedError")
    },
}
_SQL: dict[str, Entry] = {
    **_POSTGRES,
    "sqlite3.OperationalError": _sqlite,
    "sqlalchemy.StatementError": _sqlalchemy_wrapped,
    "sqlalchemy.TimeoutError": NO_CONNECTION,
    "sqlalchemy.DisconnectionError": TRANSIENT,
    "sqlalchemy.SQLAlchemyError": UNKNOWN,
}

# MySQL and MariaDB: pymysql (and aiomysql), asyncmy, mysqlclient, mysql-connector.

MYSQL_CODES: dict[int, Fault] = {
    **dict.fromkeys((2002, 2003, 2005), NEVER_SENT),
    **dict.fromkeys((1040, 1203, 1226), TOO_MANY_CONNECTIONS),
    # Lost connections, shutdown, read-only after a failover, locks and deadlocks.
    **dict.fromkeys((2006, 2013, 2055, 1053, 1079, 1927, 4031), TRANSIENT),
    **dict.fromkeys((1152, 1154, 1155, 1156, 1158, 1159, 1160, 1161, 1184), TRANSIENT),
    **dict.fromkeys((1047, 1290, 1792, 1836), TRANSIENT),
    **dict.fromkeys((1205, 1206, 1213, 1614, 1637, 3572), TRANSIENT),
    **dict.fromkeys((1969, 3024), TIMEOUT),
    # No permission, no such database, a blocked host, a packet that is too large.
    **dict.fromkeys((1044, 1045, 1049, 1129, 1130, 1142, 1143, 1153, 1698), PERMANENT),
    0: NEVER_SENT,  # the connection object was already closed
}


def _mysql_code(error: Exception, inspector: Inspector) -> Fault:
    code = as_int(read(error, "errno"))
    if code is None:
        args = read(error, "args")
        code = as_int(args[0]) if isinstance(args, tuple) and args else None
    return UNKNOWN if code is None else MYSQL_CODES.get(code, UNKNOWN)


_MYSQL_CLASSES: dict[str, Entry] = {
    "Error": _mysql_code,
    "ProgrammingError": PERMANENT,
    "IntegrityError": PERMANENT,
    "DataError": PERMANENT,
    "NotSupportedError": PERMANENT,
}
_MYSQL: dict[str, Entry] = {
    f"{library}.{name}": entry
    for library in ("pymysql", "asyncmy", "MySQLdb", "mysql")
    for name, entry in _MYSQL_CLASSES.items()
}

# pymongo (and motor, which raises its errors).

MONGO_CODES: dict[int, Fault] = {
    **dict.fromkeys(
        # The server or its replica set is not available, or a lock or snapshot was not free.
        (6, 7, 24, 89, 91, 112, 134, 189, 246, 262, 9001, 10058, 10107, 11600, 11602, 13435, 13436),
        TRANSIENT,
    ),
    50: TIMEOUT,
    16500: THROTTLED,
}
"""By the code of the server. All others are permanent."""
MONGO_RETRYABLE_LABELS = ("RetryableWriteError", "TransientTransactionError", "RetryableError")
MONGO_OVERLOADED_LABEL = "SystemOverloadedError"


def _mongo_operation(error: Exception, inspector: Inspector) -> Fault:
    """Classify by the labels that the server adds to an error, or by its code."""
    has_label = read(error, "has_error_label")
    if callable(has_label):
        if has_label(MONGO_OVERLOADED_LABEL):
            return THROTTLED
        if any(has_label(label) for label in MONGO_RETRYABLE_LABELS):
            return TRANSIENT
    code = as_int(read(error, "code"))
    return UNKNOWN if code is None else MONGO_CODES.get(code, PERMANENT)


_MONGO_PERMANENT = """ConfigurationError InvalidURI InvalidOperation InvalidName CollectionInvalid
DuplicateKeyError WriteError EncryptionError DocumentTooLarge""".split()
_MONGO: dict[str, Entry] = {
    "pymongo.PyMongoError": UNKNOWN,
    "pymongo.ConnectionFailure": TRANSIENT,
    "pymongo.AutoReconnect": TRANSIENT,
    "pymongo.ServerSelectionTimeoutError": NO_CONNECTION,
    "pymongo.WaitQueueTimeoutError": NO_CONNECTION,
    "pymongo.NetworkTimeout": TIMEOUT,
    "pymongo.ExecutionTimeout": TIMEOUT,
    "pymongo.WTimeoutError": TIMEOUT,
    "pymongo.OperationFailure": _mongo_operation,
    **{f"pymongo.{name}": PERMANENT for name in _MONGO_PERMANENT},
    "bson.BSONError": PERMANENT,
}

# redis-py, and valkey-py, a fork of it.

REDIS_TEMPORARY_REPLIES = (
    "BUSY ",
    "LOADING",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "FAILOVER",
)
"""Beginnings of replies that are about the state of the server, not about the command."""


def _redis_connection(error: Exception, inspector: Inspector) -> Fault:
    """Never sent if a refused connection or an unknown host caused it."""
    inner = inspector.classify(inner_error(error, "__cause__", "__context__"))
    return TRANSIENT if inner.sent else NEVER_SENT


def _redis_timeout(error: Exception, inspector: Inspector) -> Fault:
    return NO_CONNECTION if str(error).startswith("Timeout connecting") else TIMEOUT


def _redis_response(error: Exception, inspector: Inspector) -> Fault:
    return TRANSIENT if str(error).startswith(REDIS_TEMPORARY_REPLIES) else PERMANENT


def _count_redis_retries(entry: Entry, library: str) -> FaultReader:
    """Mark errors that redis-py retried: three times by default, from version 6 on."""

    def was_retried(error: Exception) -> bool:
        failures = loop_counts(error, f"{library}/", "call_with_retry", "failures")
        return max(failures, default=0) > 1

    return spent_if(was_retried, entry, library)


_REDIS_RETRIED: dict[str, Entry] = {
    "ConnectionError": _redis_connection,
    "TimeoutError": _redis_timeout,
    "BusyLoadingError": TRANSIENT,
    "MaxConnectionsError": NEVER_SENT,
    "ClusterDownError": TRANSIENT,
    "ReadOnlyError": TRANSIENT,
    "OutOfMemoryError": TRANSIENT,
    "TryAgainError": TRANSIENT,
    "AskError": TRANSIENT,
    "WatchError": TRANSIENT,
    "InvalidResponse": TRANSIENT,
}
_REDIS_FINAL: dict[str, Entry] = {
    "AuthenticationError": PERMANENT,
    "AuthorizationError": PERMANENT,
    "NoPermissionError": PERMANENT,
    "ResponseError": _redis_response,
    "DataError": PERMANENT,
    "LockNotOwnedError": PERMANENT,
    "RedisError": UNKNOWN,
    "ValkeyError": UNKNOWN,
}
_REDIS: dict[str, Entry] = {
    f"{library}.{name}": entry
    for library in ("redis", "valkey")
    for name, entry in (
        {name: _count_redis_retries(entry, library) for name, entry in _REDIS_RETRIED.items()}
        | _REDIS_FINAL
    ).items()
}

# elasticsearch and its transport, and opensearch-py, a fork of it.

ELASTIC_RETRIED_STATUSES = (429, 502, 503, 504)
"""Statuses that its transport retries three times by default."""


def _elastic_api(error: Exception, inspector: Inspector) -> Fault:
    meta = read(error, "meta")
    status = as_int(read(meta, "status"))
    if status is None:
        status = as_int(read(error, "status_code"))
    if status is None:
        return UNKNOWN
    fault = fault_of_status(status, retry_after(read(meta, "headers"), now=inspector.now))
    return mark_spent(fault, "elasticsearch") if _elastic_retries(error, status) else fault


def _elastic_retries(error: Exception, status: int) -> bool:
    """Return whether the transport retried this status. Only the client knows, not the error."""
    for frame in frames_of(error, "elasticsearch/", "_perform_request"):
        client = frame.f_locals.get("self")
        transport = read(client, "_transport")
        max_retries = as_int(read(client, "_max_retries"))
        if max_retries is None:
            max_retries = as_int(read(transport, "max_retries"))
        statuses = read(client, "_retry_on_status")
        if not isinstance(statuses, Collection):
            statuses = read(transport, "retry_on_status")
        if not isinstance(statuses, Collection):
            statuses = ELASTIC_RETRIED_STATUSES
        return bool(max_retries) and status in statuses
    return False


def _count_elastic_retries(entry: Fault) -> FaultReader:
    """Mark errors that the transport retried. The last one has the errors of earlier attempts."""
    return spent_if(lambda error: bool(read(error, "errors")), entry, "elasticsearch")


_ELASTIC_TRANSPORT: dict[str, Entry] = {
    "ApiError": _elastic_api,
    "ConnectionError": _count_elastic_retries(TRANSIENT),
    "ConnectionTimeout": _count_elastic_retries(TIMEOUT),
    "TlsError": PERMANENT,
    "SerializationError": PERMANENT,
    "SniffingError": TRANSIENT,
    "TransportError": UNKNOWN,
}
_ELASTIC: dict[str, Entry] = {
    **{
        f"{library}.{name}": entry
        for library in ("elastic_transport", "elasticsearch")
        for name, entry in _ELASTIC_TRANSPORT.items()
    },
    "opensearchpy.TransportError": _elastic_api,
    "opensearchpy.ConnectionError": TRANSIENT,
    "opensearchpy.ConnectionTimeout": TIMEOUT,
    "opensearchpy.SSLError": PERMANENT,
    "opensearchpy.SerializationError": PERMANENT,
    "opensearchpy.ImproperlyConfigured": PERMANENT,
}
FAMILIES: dict[str, dict[str, Entry]] = {
    "sql": _SQL,
    "mysql": _MYSQL,
    "mongo": _MONGO,
    "redis": _REDIS,
    "elastic": _ELASTIC,
}
