"""Connections to Postgres, with settings that hold for our own sessions only."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from sqlalchemy import Engine, NullPool, create_engine

from ...errors import LedgerError

OLDEST = 130000
CONNECT_SECONDS = 10
# A plan made while the tables were small would read all of them for ever after; and to plan anew each time costs as much as
# the statement, while the plan is always the same. Before version 18 a plan that reads a whole table all the same then counts as
# so dear that the server compiles it to machine code first, which takes a hundred times longer than to run it.
SETTINGS = (
    "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off; SET TimeZone = 'UTC'; "
    "SET application_name = 'redrive'"
)


def connect(target: str, /, *, pooled: bool = False) -> Any:
    """A connection in autocommit. pooled: nothing is prepared, and nothing set, that others would meet."""
    import psycopg  # noqa: PLC0415  # an extra of its own

    try:
        more: dict[str, Any] = {"prepare_threshold": None} if pooled else {}
        connection = psycopg.connect(target, autocommit=True, connect_timeout=CONNECT_SECONDS, **more)
    except psycopg.OperationalError as error:
        raise LedgerError(f"Postgres cannot be reached: {' '.join(str(error).split())}") from error
    except psycopg.ProgrammingError as error:
        # Its words repeat the address, password and all.
        raise LedgerError("the address is not one that Postgres understands") from error.with_traceback(None).__cause__
    try:
        if connection.info.server_version < OLDEST:
            raise LedgerError(f"Postgres {connection.info.server_version // 10000} is too old: a ledger needs 13 or later")
        if not pooled:
            connection.execute(SETTINGS)
    except BaseException:
        connection.close()
        raise
    return connection


def engine(target: str, /, *, pooled: bool = False) -> Engine:
    """SQLAlchemy around such connections; it opens none by itself."""
    if find_spec("psycopg") is None:
        raise LedgerError('a ledger on Postgres needs psycopg: pip install "redrive[postgres]"')
    return create_engine(
        "postgresql+psycopg://", creator=lambda: connect(target, pooled=pooled), poolclass=NullPool, isolation_level="AUTOCOMMIT",
        pool_reset_on_return=None,  # it is closed then; to roll back on one that was cut would only print a traceback
    )  # fmt: skip
