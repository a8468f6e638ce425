"""A caller's open transaction, in which the ledger's statements run.

The caller's changes and the job commit together, or neither does.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import sqlalchemy
from sqlalchemy.util import greenlet_spawn

from .address import Address
from .caller_runners import (
    AsyncDriverRunner,
    AsyncpgRunner,
    DjangoRunner,
    DriverRunner,
    Psycopg2Runner,
    PsycopgAsyncRunner,
    PsycopgRunner,
    SqlAlchemyAsyncpgRunner,
    SqlAlchemyRunner,
)
from .compiled import BatchRunner

if TYPE_CHECKING:
    import sqlalchemy.ext.asyncio
    import sqlalchemy.orm

R = TypeVar("R")

POSTGRES_DRIVERS = frozenset(("asyncpg", "psycopg", "psycopg_async", "psycopg2"))
SQLITE_DRIVERS = frozenset(("pysqlite", "aiosqlite"))
SAME_DATABASE = "; open tx on the ledger's database, or pass the address of tx's database to App"
AUTOCOMMIT = "tx has no open transaction, because it is in autocommit mode; begin one"
FIXES = {
    "sessionmaker": "pass a session of it",
    "engine": "pass a connection of it, as in `with engine.begin() as tx:`",
    "pool": "pass a connection of it, in a transaction",
    "transaction": "pass the connection of the transaction",
    "cursor": "pass the connection of the cursor",
    "atomic": "pass `django.db.connection`, inside the block",
    "sqlalchemy": "pass `db.session`",
}
"""What to pass instead of an object, by the end of the name of its class."""


class DriverConnection(Protocol):
    """A connection of sqlite3, psycopg, psycopg2 or Django."""

    def cursor(self) -> Any:
        """Return a cursor."""

    def commit(self) -> None:
        """Commit the transaction."""


class AsyncDriverConnection(Protocol):
    """A connection of asyncpg, or a `psycopg.AsyncConnection`."""

    def execute(self, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Run a statement."""

    def transaction(self, *args: Any, **kwargs: Any) -> Any:
        """Return a transaction."""


Transaction: TypeAlias = (
    "sqlalchemy.Connection | sqlalchemy.orm.Session | sqlalchemy.orm.scoped_session[Any] "
    "| DriverConnection"
)
"""An open transaction of yours, on the ledger's database."""

AsyncTransaction: TypeAlias = (
    "sqlalchemy.ext.asyncio.AsyncConnection | sqlalchemy.ext.asyncio.AsyncSession "
    "| sqlalchemy.ext.asyncio.async_scoped_session[Any] | AsyncDriverConnection"
)
"""The same for async code."""


def runner_of(tx: Any, address: Address, /) -> BatchRunner:
    """Return a runner for the ledger's statements in this transaction.

    Raises:
        TypeError: `tx` is not a supported connection.
        ValueError: It has no open transaction.
    """
    dialect = address.dialect
    if isinstance(tx, AsyncDriverRunner):
        return _check_async(tx, address)
    if "sqlalchemy.orm" in sys.modules:  # otherwise `tx` cannot come from it
        if isinstance(tx, sqlalchemy.orm.scoped_session):
            tx = tx()  # such as Flask-SQLAlchemy's `db.session`
        if isinstance(tx, sqlalchemy.orm.Session):
            tx = tx.connection()
    if isinstance(tx, sqlalchemy.Connection):
        return _sqlalchemy_runner(tx, address)
    libraries = _libraries_of(tx)
    if "django" in libraries and hasattr(tx, "in_atomic_block"):
        return DjangoRunner(tx, runner_of(_connection_of_django(tx, address), address))
    if isinstance(tx, sqlite3.Connection):
        if dialect != "sqlite":
            raise TypeError(f"tx is a connection of SQLite; the ledger is on {dialect}")
        if _commits_each_statement(tx):
            raise ValueError("tx has no open transaction; execute BEGIN IMMEDIATE first")
        return DriverRunner(tx)
    if "psycopg2" in libraries:
        return _psycopg2_runner(tx, address)
    if "psycopg" in libraries and "Connection" in _class_names(tx):
        _check_postgres(address)
        if tx.autocommit and not tx.info.transaction_status:
            raise ValueError("tx has no open transaction; use `with connection.transaction():`")
        return PsycopgRunner(tx)
    if hasattr(tx, "run_sync") or _async_runner_of(tx) is not None:
        raise TypeError(
            f"tx is {_name_of(tx)}, and this method is sync; use the async method, such as "
            "`await command.using(tx=tx).asubmit(...)`"
        )
    raise TypeError(
        "tx must be an open SQLAlchemy connection or session, Django's `connection`, or a "
        f"connection of sqlite3, psycopg or psycopg2, not {_name_of(tx)}{_fix(tx, address)}"
    )


async def run_in_caller(tx: Any, verb: Callable[[Any], R], /) -> R:
    """Call sync code of the ledger in an async transaction of the caller.

    Args:
        tx: The transaction.
        verb: The code. Its argument is the transaction for `Connections.adopt_transaction`.

    Raises:
        TypeError: `tx` is not a supported async connection.
        ImportError: greenlet is not installed.
    """
    if "async_scoped_session" in _class_names(tx):
        tx = tx()
    if hasattr(tx, "run_sync"):
        result: R = await tx.run_sync(verb)
        return result
    runner = _async_runner_of(tx)
    if runner is None:
        raise TypeError(
            "tx must be an AsyncConnection or an AsyncSession of SQLAlchemy, a connection of "
            f"asyncpg, or a psycopg.AsyncConnection here, not {_name_of(tx)}"
            f"{_fix(tx) or '; pass a sync transaction to the sync method'}"
        )
    if find_spec("greenlet") is None:
        raise ImportError(f"tx is {_name_of(tx)}, which needs greenlet: pip install greenlet")
    return await greenlet_spawn(verb, runner)


def _async_runner_of(tx: Any) -> AsyncDriverRunner | None:
    libraries = _libraries_of(tx)
    if "asyncpg" in libraries and hasattr(tx, "is_in_transaction"):
        return AsyncpgRunner(tx)
    if "psycopg" in libraries and "AsyncConnection" in _class_names(tx):
        return PsycopgAsyncRunner(tx)
    return None


def _check_async(run: AsyncDriverRunner, address: Address) -> BatchRunner:
    _check_postgres(address)
    if not run.in_transaction:
        raise ValueError("tx has no open transaction; use `async with connection.transaction():`")
    return run


def _check_postgres(address: Address) -> None:
    if address.dialect != "postgresql":
        raise TypeError(f"tx is a connection of Postgres; the ledger is on {address.dialect}")


def _sqlalchemy_runner(tx: sqlalchemy.Connection, address: Address) -> BatchRunner:
    dialect, driver = tx.dialect.name, tx.dialect.driver
    drivers = SQLITE_DRIVERS if address.dialect == "sqlite" else POSTGRES_DRIVERS
    if dialect != address.dialect or driver not in drivers:
        raise TypeError(
            f"tx is a connection of {dialect}+{driver}; "
            f"the ledger is on {address.dialect}, by {', '.join(sorted(drivers))}{_hint(address)}"
        )
    if tx.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        raise ValueError(AUTOCOMMIT)
    if not tx.in_transaction():
        tx.begin()  # statements may bypass SQLAlchemy, but its commit must end them
    proxied = tx.connection
    if dialect == "sqlite":
        is_autocommit = _commits_each_statement(proxied.driver_connection)
    else:  # set for the whole engine
        is_autocommit = getattr(proxied.dbapi_connection, "autocommit", False)
    if is_autocommit:
        raise ValueError(AUTOCOMMIT)
    if driver == "psycopg2":
        return _psycopg2_runner(proxied.driver_connection, address)
    return SqlAlchemyAsyncpgRunner(tx) if driver == "asyncpg" else SqlAlchemyRunner(tx)


def _commits_each_statement(connection: Any) -> bool:
    """Return whether a connection of sqlite3 or aiosqlite has no transaction, and begins none."""
    if connection.in_transaction:
        return False
    # Python 3.12 has `autocommit`. If it is a boolean, `isolation_level` has no effect.
    is_autocommit = getattr(connection, "autocommit", None)
    if isinstance(is_autocommit, bool):
        return is_autocommit
    return connection.isolation_level is None


def _connection_of_django(tx: Any, address: Address) -> Any:
    """Return the driver's connection of a Django connection, such as `connections["shop"]`.

    Raises:
        TypeError: It is a connection to another database.
        ValueError: It has no open transaction.
    """
    named = f"Django's connection {tx.alias!r}"
    if tx.vendor != address.dialect:
        raise TypeError(f"tx is {named} to {tx.vendor}; the ledger is on {address.dialect}")
    if tx.get_autocommit():
        raise ValueError(
            f"tx has no open transaction, because {named} is in autocommit mode; "
            f"use `with transaction.atomic(using={tx.alias!r}):`"
        )
    tx.validate_no_broken_transaction()  # as Django does before each query
    return tx.connection


def _psycopg2_runner(tx: Any, address: Address) -> BatchRunner:
    from psycopg2 import extensions  # noqa: PLC0415  # the caller's library

    if not isinstance(tx, extensions.connection):
        raise TypeError(
            f"tx must be a connection of psycopg2, not its {tx.__class__.__name__}{_fix(tx)}"
        )
    _check_postgres(address)
    if tx.autocommit and tx.info.transaction_status == extensions.TRANSACTION_STATUS_IDLE:
        raise ValueError(AUTOCOMMIT)
    return Psycopg2Runner(tx)


def check_same_database(run: BatchRunner, address: Address, /) -> None:
    """Reject a transaction on another database, where no worker would find its jobs."""
    if address.dialect == "sqlite":
        databases = run.execute("PRAGMA database_list").fetchall()
        file = next(str(row[2]) for row in databases if row[1] == "main")
        if not file or file != address.target:
            raise ValueError(
                f"tx is on the database {file or 'in memory'!r}, the ledger on {address.shown!r}"
                f"{_hint(address) or SAME_DATABASE}"
            )
    else:
        query = "SELECT to_regclass('redrive_job') IS NOT NULL, current_database()"
        has_ledger, database = run.execute(query).fetchone()
        if not has_ledger:
            raise ValueError(
                f"tx is on the database {database!r}, which has no ledger; "
                f"the ledger is {address.shown!r}{SAME_DATABASE}"
            )


def _hint(address: Address) -> str:
    """Return how to get a transaction on this ledger, if that is special. For messages."""
    if address.sandboxed:
        return "; in a sandbox, bind the session to the engine of the sandbox (`box.engine`)"
    if address.in_memory:
        return "; for a ledger in memory use `with ledger.begin() as tx`"
    return ""


def _libraries_of(tx: Any) -> set[str]:
    """Return the libraries of an object. A proxy of instrumentation has the class of its target."""
    return {base.__module__.partition(".")[0] for base in tx.__class__.__mro__}


def _class_names(tx: Any) -> set[str]:
    return {base.__name__ for base in tx.__class__.__mro__}


def _name_of(tx: Any) -> str:
    """Return an object by class and library, such as `a Pool of asyncpg`. For messages."""
    kind = tx.__class__
    library = kind.__module__.partition(".")[0]
    name = f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__}"
    return name if library in ("builtins", "__main__") else f"{name} of {library}"


def _fix(tx: Any, address: Address | None = None) -> str:
    """Return what to pass instead. For messages."""
    name = tx.__class__.__name__.lower()
    fix = next((fix for end, fix in FIXES.items() if name.endswith(end)), None)
    return f"; {fix}" if fix is not None else "" if address is None else _hint(address)
