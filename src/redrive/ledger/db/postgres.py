"""Connections to Postgres, with settings that hold for our own sessions only."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from sqlalchemy import Engine, NullPool, create_engine

from ...errors import LedgerError, LedgerUnavailable
from .silence_watch import MARGIN, PATIENCE, STATEMENT_SECONDS, Watch

OLDEST = 130000
TIMEOUTS: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""Seconds (the last: milliseconds), where the address does not set them. A peer that is gone is noticed within 25 s by an
idle connection, and within 15 s by one that has sent something."""
# A plan made while the tables were small would read all of them for ever after; and to plan anew each time costs as much as
# the statement, while the plan is always the same. Before version 18 a plan that reads a whole table all the same then counts as
# so dear that the server compiles it to machine code first, which takes a hundred times longer than to run it.
SETTINGS = (
    "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off; SET TimeZone = 'UTC'; "
    "SET application_name = 'redrive'; SELECT set_config('statement_timeout', "
    f"'{STATEMENT_SECONDS}s', false) WHERE current_setting('statement_timeout') = '0'"
)
BOUND = "SELECT extract(epoch FROM current_setting('statement_timeout')::interval)"
"""Seconds after which the server gives up a statement of this session; 0: never."""


def connect(target: str, /, *, pooled: bool = False, watch: Watch | None = None) -> Any:
    """A connection in autocommit. pooled: nothing is prepared, and nothing set, that others would meet.

    watch: told that the connection is being set up; call its `end_opening` afterwards.
    """
    import psycopg  # noqa: PLC0415  # an extra of its own
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    from .watched_connection import Watched  # noqa: PLC0415  # likewise

    try:
        given = conninfo_to_dict(target)
        more: dict[str, Any] = {name: value for name, value in TIMEOUTS.items() if name not in given}
        if pooled:
            more["prepare_threshold"] = None
        connection = Watched.connect(target, autocommit=True, **more)
    except psycopg.OperationalError as error:
        raise LedgerUnavailable(f"Postgres cannot be reached: {' '.join(str(error).split())}") from error
    except psycopg.ProgrammingError as error:
        # Its words repeat the address, password and all.
        raise LedgerError("the address is not a valid Postgres address") from error.with_traceback(None).__cause__
    try:
        if watch is not None:
            watch.begin_opening(connection.fileno())
        if connection.info.server_version < OLDEST:
            raise LedgerError(f"Postgres {connection.info.server_version // 10000} is too old; a ledger needs 13 or later")
        answer = connection.execute(BOUND if pooled else f"{SETTINGS}; {BOUND}")
        while answer.nextset():
            pass
        connection.usual = _patience(float(answer.fetchall()[0][0]))
    except psycopg.OperationalError as error:
        connection.close()
        raise LedgerUnavailable(f"Postgres does not respond: {' '.join(str(error).split())}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _patience(bound: float) -> float:
    """How long to wait for an answer, by the `statement_timeout` of the session: your own one, or ours."""
    return bound + MARGIN if bound else PATIENCE


def engine(target: str, /, *, pooled: bool = False, watch: Watch | None = None) -> Engine:
    """SQLAlchemy around such connections; it opens none by itself."""
    if find_spec("psycopg") is None:
        raise LedgerError('a ledger on Postgres needs psycopg: pip install "redrive[postgres]"')
    return create_engine(
        "postgresql+psycopg://",
        creator=lambda: connect(target, pooled=pooled, watch=watch),
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        pool_reset_on_return=None,  # it is closed then; to roll back on one that was cut would only print a traceback
    )
