"""Connections to Postgres, with settings for Redrive's own sessions."""

from __future__ import annotations

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


def connect(
    target: str, /, *, pooled: bool = False, watch: Watch | None = None
) -> WatchedConnection:
    """Open a connection in autocommit.

    Args:
        target: Address for psycopg.
        pooled: Prepare nothing and set nothing that other clients of the pooler would get.
        watch: Watches the connection while it is set up. Call its `end_opening` afterwards.
    """
    try:
        options = conninfo_to_dict(target)
        extra: dict[str, Any] = {
            name: value for name, value in TIMEOUTS.items() if name not in options
        }
        if pooled:
            extra["prepare_threshold"] = None
        connection = WatchedConnection.connect(target, autocommit=True, **extra)
    except psycopg.OperationalError as error:
        message = " ".join(str(error).split())
        raise LedgerUnavailable(f"Postgres cannot be reached: {message}") from error
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
        message = " ".join(str(error).split())
        raise LedgerUnavailable(f"Postgres does not respond: {message}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def engine(target: str, /, *, pooled: bool = False, watch: Watch | None = None) -> Engine:
    """Return SQLAlchemy's engine around such connections. It opens none by itself."""
    return create_engine(
        "postgresql+psycopg://",
        creator=lambda: connect(target, pooled=pooled, watch=watch),
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        # The connection is closed then. A rollback on a cut connection would print a traceback.
        pool_reset_on_return=None,
    )
