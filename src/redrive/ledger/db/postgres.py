"""Connections to Postgres, with settings for Redrive's own sessions."""

from __future__ import annotations

import os
import re
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, NullPool, create_engine

from ...errors import LedgerError, LedgerUnavailable
from .silence_watch import MARGIN, PATIENCE, STATEMENT_SECONDS, Watch

MIN_SERVER_VERSION = 130000
TIMEOUTS: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""In seconds (the last in milliseconds), unless the address sets them. An idle connection notices a
dead peer within 25 s, and one that has sent something within 15 s."""
MIN_CONNECT_SECONDS = 2
"""The least that libpq accepts. Several hosts share the time for one."""
HOST_LISTS = ("host", "hostaddr", "port")
ATTRIBUTES, ATTRIBUTES_VARIABLE = "target_session_attrs", "PGTARGETSESSIONATTRS"
_FAILURE = re.compile(r"^- host: (.*?), port: (.*?), hostaddr: (.*?): ", re.MULTILINE)
"""Begin of each failure in psycopg's error about several servers."""
_SERVER = re.compile(
    r'\A.*?connection to server (?:at|on socket) "(?P<host>[^"]*)"(?: \([^)]*\))?'
    r"(?:, port (?P<port>\d+))? failed: (?:FATAL: +)?"
)
"""Begin of an error of libpq about one server."""
# Without a generic plan, planning costs as much as the statement, and a plan from when the tables
# were small would read whole tables. Before version 18, the high cost of a disabled sequential scan
# makes the server compile the plan to machine code, which takes a hundred times longer than to run
# it.
SETTINGS = (
    "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off; "
    "SET TimeZone = 'UTC'; SET application_name = 'redrive'; "
    f"SELECT set_config('statement_timeout', '{STATEMENT_SECONDS}s', false) "
    "WHERE current_setting('statement_timeout') = '0'"
)
STATEMENT_TIMEOUT = "SELECT extract(epoch FROM current_setting('statement_timeout')::interval)"
"""Seconds. 0: no timeout."""


class WatchedConnection(psycopg.Connection[Any]):
    """A connection that tells the watch while it waits for the server.

    psycopg runs every statement of every cursor through `wait`.
    """

    usual = PATIENCE
    """Seconds until a statement of ours is overdue, by the session's `statement_timeout`."""
    patience: float | None = None
    """The same for the next statements. None: they may take any time."""
    watch: Watch | None = None
    line = -1

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for the server. The watch cuts the connection after `patience` seconds."""
        if self.watch is None or self.patience is None:
            return super().wait(gen, *args, **options)
        self.watch.begin(self.line, self.patience)
        try:
            return super().wait(gen, *args, **options)
        finally:
            self.watch.end(self.line)


class Servers:
    """The servers of one address, of which one takes writes. Threads may share it.

    A machine that is down does not answer, so each attempt to reach it waits for the timeout. The
    server that answered last is therefore asked first.

    Args:
        target: Address for psycopg.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._first = 0
        """Place of the server that answered last."""
        self._count = 1

    def connect(self, **options: Any) -> WatchedConnection:
        """Open a connection in autocommit, with these options of psycopg.

        Raises:
            psycopg.OperationalError: No server answers, or none of the wanted kind.
            psycopg.ProgrammingError: The address is not valid.
        """
        given = conninfo_to_dict(self._target)
        lists = {name: str(given[name]).split(",") for name in HOST_LISTS if given.get(name)}
        count = self._count = max(map(len, lists.values()), default=1)
        defaults: dict[str, Any] = dict(TIMEOUTS)
        if count > 1:
            defaults["connect_timeout"] = max(
                MIN_CONNECT_SECONDS, TIMEOUTS["connect_timeout"] // count
            )
            if ATTRIBUTES_VARIABLE not in os.environ:
                defaults[ATTRIBUTES] = "read-write"
        options |= {name: value for name, value in defaults.items() if name not in given}
        first = self._first
        for name, values in lists.items():
            if len(values) == count:
                options[name] = ",".join(values[first:] + values[:first])
        connection = WatchedConnection.connect(self._target, autocommit=True, **options)
        if count > 1:
            self._first = _place(connection, lists, first)
        return connection

    def skip(self) -> None:
        """Ask another server first: this one accepted a connection, and then did not respond.

        A pooler does that whose server is down.
        """
        self._first = (self._first + 1) % self._count


def _place(connection: WatchedConnection, lists: dict[str, list[str]], default: int) -> int:
    """Return the place of a connection's server in the lists of an address."""
    info = connection.info
    hosts = lists.get("host") or lists["hostaddr"]
    host = info.host if "host" in lists else info.hostaddr
    ports = lists.get("port", [""])
    for place, name in enumerate(hosts):
        port = ports[place % len(ports)]
        if name == host and port in ("", str(info.port)):
            return place
    return default


def describe_failure(error: psycopg.Error, /) -> str:
    """Return in one line why no server could be reached: each server, and its problem."""
    message = str(error)
    starts = list(_FAILURE.finditer(message))
    ends = [match.start() for match in starts[1:]] + [len(message)]
    failures = [message[match.end() : end] for match, end in zip(starts, ends, strict=bool(starts))]
    servers = [_server_name(*(part.strip("'") for part in match.groups())) for match in starts]
    if not starts:
        match = _SERVER.match(message)
        if match is None:
            return " ".join(message.split())
        failures, servers = [message], [_server_name(match["host"], match["port"] or "", "")]
    problems = (_SERVER.sub("", failure).partition("\n")[0] for failure in failures)
    # A name may lead to several addresses that fail alike.
    lines = (f"{server}: {problem}" for server, problem in zip(servers, problems, strict=True))
    return "; ".join(dict.fromkeys(lines))


def _server_name(host: str, port: str, address: str) -> str:
    name = address if host == "None" else host
    return name if port in ("", "None") else f"{name}:{port}"


def connect(
    servers: Servers, /, *, pooled: bool = False, watch: Watch | None = None
) -> WatchedConnection:
    """Open a connection in autocommit.

    Args:
        servers: The servers of the address.
        pooled: Prepare nothing and set nothing that other clients of the pooler would get.
        watch: Watches the connection while it is set up. Call its `end_opening` afterwards.
    """
    try:
        connection = servers.connect(**({"prepare_threshold": None} if pooled else {}))
    except psycopg.OperationalError as error:
        raise LedgerUnavailable(f"Postgres cannot be reached: {describe_failure(error)}") from error
    except psycopg.ProgrammingError as error:
        # The message repeats the address with its password.
        cause = error.with_traceback(None).__cause__
        raise LedgerError("the address is not a valid Postgres address") from cause
    try:
        if watch is not None:
            watch.begin_opening(connection.fileno())
        version = connection.info.server_version
        if version < MIN_SERVER_VERSION:
            raise LedgerError(f"Postgres {version // 10000} is too old; a ledger needs 13 or later")
        cursor = connection.execute(
            STATEMENT_TIMEOUT if pooled else f"{SETTINGS}; {STATEMENT_TIMEOUT}"
        )
        while cursor.nextset():
            pass
        timeout = float(cursor.fetchall()[0][0])
        connection.usual = timeout + MARGIN if timeout else PATIENCE
    except psycopg.OperationalError as error:
        connection.close()
        servers.skip()
        message = " ".join(str(error).split())
        raise LedgerUnavailable(f"Postgres does not respond: {message}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def engine(target: str, /, *, pooled: bool = False, watch: Watch | None = None) -> Engine:
    """Return SQLAlchemy's engine around such connections. It opens none by itself."""
    servers = Servers(target)
    return create_engine(
        "postgresql+psycopg://",
        creator=lambda: connect(servers, pooled=pooled, watch=watch),
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        # The connection is closed then. A rollback on a cut connection would print a traceback.
        pool_reset_on_return=None,
    )
