"""Async transactions of callers: asyncpg, psycopg, and SQLAlchemy and SQLModel on these and on aiosqlite."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import psycopg
import psycopg.rows
import pytest
import sqlalchemy
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelSession

from redrive import App, Event
from redrive.errors import KeyBusy
from redrive.ledger import AsyncLedger, Ledger, NewJob, open_ledger
from redrive.ledger.db import caller_transaction
from redrive.ledger.db.caller_runners import asyncpg_statement
from tests.conformance.ledger.world import new
from tests.ledgers import sqlite_ledger

EFFECT = "INSERT INTO effect VALUES (1)"
ERRORS = (asyncpg.PostgresError, psycopg.Error, DBAPIError)


class Caller:
    """A connection of one library, in a transaction."""

    def __init__(self, tx: Any, run: Callable[[str], Any], commit: Callable[[], Any], rollback: Callable[[], Any]) -> None:
        self.tx = tx
        self.run = run
        self.commit = commit
        self.rollback = rollback

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """A savepoint that is rolled back after an error, as the library does it."""
        is_sqlalchemy = isinstance(self.tx, (AsyncConnection, AsyncSession))
        async with self.tx.begin_nested() if is_sqlalchemy else self.tx.transaction():
            yield


Open: TypeAlias = Callable[[str], AbstractAsyncContextManager[Caller]]


@asynccontextmanager
async def on_asyncpg(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def on_asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)


@asynccontextmanager
async def on_psycopg(url: str) -> AsyncIterator[Caller]:
    connection = await psycopg.AsyncConnection.connect(url, row_factory=psycopg.rows.dict_row)
    yield Caller(connection, connection.execute, connection.commit, connection.rollback)
    await connection.close()


def sqlalchemy_url(url: str, driver: str) -> str:
    return url.replace("sqlite://", "sqlite+aiosqlite://").replace("postgresql://", f"postgresql+{driver}://")


def on_sqlalchemy(driver: str, kind: type[AsyncSession] | None = None) -> Open:
    @asynccontextmanager
    async def open_caller(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(sqlalchemy_url(url, driver))
        async with engine.connect() if kind is None else kind(engine) as tx:

            async def run(text: str) -> None:
                await AsyncSession.execute(tx, sqlalchemy.text(text)) if isinstance(tx, AsyncSession) else (
                    await tx.execute(sqlalchemy.text(text))
                )

            yield Caller(tx, run, tx.commit, tx.rollback)
        await engine.dispose()

    return open_caller


CALLERS: dict[str, Open] = {
    "asyncpg": on_asyncpg,
    "asyncpg pool": on_asyncpg_pool,
    "psycopg": on_psycopg,
    "AsyncConnection on asyncpg": on_sqlalchemy("asyncpg"),
    "AsyncSession on asyncpg": on_sqlalchemy("asyncpg", AsyncSession),
    "SQLModel on asyncpg": on_sqlalchemy("asyncpg", SQLModelSession),
    "AsyncConnection on psycopg": on_sqlalchemy("psycopg"),
    "AsyncSession on psycopg": on_sqlalchemy("psycopg", AsyncSession),
    "AsyncConnection on aiosqlite": on_sqlalchemy("aiosqlite"),
    "AsyncSession on aiosqlite": on_sqlalchemy("aiosqlite", AsyncSession),
}
ON_POSTGRES = [name for name in CALLERS if "aiosqlite" not in name]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> str:
    """The URL of an empty ledger on the database of the caller's driver."""
    url: str = sqlite_ledger(tmp_path) if "aiosqlite" in name else request.getfixturevalue("postgres_ledger")
    return url


@pytest.fixture
def ledger(place: str) -> Iterator[Ledger]:
    """The ledger, and a table of the caller beside it."""
    with open_ledger(place) as open_caller:
        with open_caller.begin() as tx:
            tx.exec_driver_sql("CREATE TABLE effect (n INTEGER)")
        yield open_caller
        assert open_caller.imbalance() == []


def use(name: str, place: str, ledger: Ledger, act: Callable[[AsyncLedger, Caller], Any]) -> None:
    """Call `act` with a transaction of the library."""

    async def main() -> None:
        aio = AsyncLedger(ledger)
        async with CALLERS[name](place) as caller:
            await act(aio, caller)
        aio.close()

    asyncio.run(main())


def stored_jobs(ledger: Ledger) -> tuple[list[str], int]:
    """Return the keys of the stored jobs, and the number of effects."""
    with ledger.reading() as connection:
        effects = connection.exec_driver_sql("SELECT count(*) FROM effect").scalar_one()
    return sorted(job.key for job in ledger.jobs("ready")), effects


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", CALLERS)
def test_effect_and_jobs_commit_together(name: str, place: str, ledger: Ledger) -> None:
    ledger.submit(*new("known"))

    async def act(aio: AsyncLedger, caller: Caller) -> None:
        await caller.run(EFFECT)
        submitted = await aio.submit_many(new("b", "known", "a"), tx=caller.tx)
        assert [job.created for job in submitted] == [True, False, True]
        assert stored_jobs(ledger) == (["known"], 0)
        await caller.commit()

    use(name, place, ledger, act)
    assert stored_jobs(ledger) == (["a", "b", "known"], 1)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", CALLERS)
def test_rollback_leaves_neither_effect_nor_job(name: str, place: str, ledger: Ledger) -> None:
    async def act(aio: AsyncLedger, caller: Caller) -> None:
        await caller.run(EFFECT)
        assert (await aio.submit(*new("a"), tx=caller.tx)).created
        await caller.rollback()

    use(name, place, ledger, act)
    assert stored_jobs(ledger) == ([], 0)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", CALLERS)
def test_a_savepoint_takes_only_its_own_jobs_back(name: str, place: str, ledger: Ledger) -> None:
    async def act(aio: AsyncLedger, caller: Caller) -> None:
        await caller.run(EFFECT)
        await aio.submit(*new("outer"), tx=caller.tx)
        with pytest.raises(ZeroDivisionError):
            async with caller.savepoint():
                await aio.submit(*new("undone"), tx=caller.tx)
                async with caller.savepoint():
                    await aio.submit(*new("undone, too"), tx=caller.tx)
                raise ZeroDivisionError
        async with caller.savepoint():
            await aio.submit(*new("inner"), tx=caller.tx)
        await caller.commit()

    use(name, place, ledger, act)
    assert stored_jobs(ledger) == (["inner", "outer"], 1)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", ON_POSTGRES)
def test_jobs_with_every_field_are_stored_unchanged(name: str, place: str, ledger: Ledger) -> None:
    """Texts that need quotes in an array, and parameters of each type."""
    odd = NewJob(
        "mail", 'q"u\\o,te%s{}', b"\x00\xff%(a)s", priority=-1, delay=0.5, max_attempts=7, keep=60.0,
        ids={"correlation_id": "c-1"}, headers={"a": "ž"}, request_hash=b"\x01" * 32, tenant="t'1", sequence="s",
    )  # fmt: skip
    later = odd._replace(key="later", payload=b"")

    async def act(aio: AsyncLedger, caller: Caller) -> None:
        assert [job.state for job in await aio.submit_many([odd, later], tx=caller.tx)] == ["ready", "held"]
        duplicate = await aio.submit(odd, tx=caller.tx)
        assert (duplicate.created, duplicate.request_hash) == (False, b"\x01" * 32)
        await caller.commit()

    use(name, place, ledger, act)
    job = ledger.find(odd.kind, odd.key)
    assert job is not None
    assert (job.priority, job.max_attempts, job.tenant, job.sequence) == (-1, 7, "t'1", "s")
    lease = ledger.get(job.id)
    assert lease is not None
    assert lease.payload == odd.payload


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", ON_POSTGRES)
def test_a_read_only_transaction_is_an_error_of_the_driver(name: str, place: str, ledger: Ledger) -> None:
    async def act(aio: AsyncLedger, caller: Caller) -> None:
        await caller.run("SET TRANSACTION READ ONLY")
        with pytest.raises(ERRORS, match="read-only transaction"):
            await aio.submit(*new("a"), tx=caller.tx)
        await caller.rollback()

    use(name, place, ledger, act)
    assert stored_jobs(ledger) == ([], 0)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", ["AsyncConnection on aiosqlite", "AsyncSession on aiosqlite"])
def test_a_read_only_connection_to_sqlite_is_an_error_of_the_driver(name: str, place: str, ledger: Ledger) -> None:
    async def act(aio: AsyncLedger, caller: Caller) -> None:
        await caller.run("PRAGMA query_only = ON")
        with pytest.raises(DBAPIError, match="readonly database"):
            await aio.submit(*new("a"), tx=caller.tx)
        await caller.rollback()

    use(name, place, ledger, act)
    assert stored_jobs(ledger) == ([], 0)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", ON_POSTGRES)
def test_an_aborted_transaction_is_an_error_of_the_driver(name: str, place: str, ledger: Ledger) -> None:
    async def act(aio: AsyncLedger, caller: Caller) -> None:
        await caller.run(EFFECT)
        with pytest.raises(ERRORS):
            await caller.run("SELECT * FROM nowhere")
        with pytest.raises(ERRORS, match="transaction is aborted"):
            await aio.submit(*new("a"), tx=caller.tx)
        await caller.rollback()

    use(name, place, ledger, act)
    assert stored_jobs(ledger) == ([], 0)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "aiosqlite"])
def test_sqlalchemy_in_autocommit_is_rejected(driver: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Set for a connection, or for the whole engine."""
    url = sqlite_ledger(tmp_path) if driver == "aiosqlite" else request.getfixturevalue("postgres_ledger")

    async def main(ledger: Ledger) -> None:
        aio = AsyncLedger(ledger)
        for options in ({}, {"isolation_level": "AUTOCOMMIT"}):
            engine = create_async_engine(sqlalchemy_url(url, driver), **options)
            async with engine.connect() as connection:
                _ = await connection.execution_options(**((options and {}) or {"isolation_level": "AUTOCOMMIT"}))
                with pytest.raises(ValueError, match="tx has no open transaction, because it is in autocommit mode"):
                    await aio.submit(*new("a"), tx=connection)
            await engine.dispose()
        aio.close()

    with open_ledger(url) as ledger:
        asyncio.run(main(ledger))
        assert ledger.counts() == {}


@pytest.mark.req("X-1")
def test_a_driver_without_a_transaction_is_rejected(on_postgres: Ledger, postgres_ledger: str) -> None:
    async def main() -> None:
        aio = AsyncLedger(on_postgres)
        connection = await asyncpg.connect(postgres_ledger)
        with pytest.raises(ValueError, match=r"^tx has no open transaction; use `async with connection\.transaction\(\):`$"):
            await aio.submit(*new("a"), tx=connection)
        await connection.close()
        async with await psycopg.AsyncConnection.connect(postgres_ledger, autocommit=True) as idle:
            with pytest.raises(ValueError, match=r"tx has no open transaction; use `async with connection\.transaction\(\):`"):
                await aio.submit(*new("a"), tx=idle)
            async with idle.transaction():
                assert (await aio.submit(*new("in block"), tx=idle)).created
        aio.close()

    asyncio.run(main())
    assert [job.key for job in on_postgres.jobs("ready")] == ["in block"]


@pytest.mark.req("X-1")
def test_an_async_transaction_on_another_database_is_rejected(on_postgres: Ledger, on_sqlite: Ledger, postgres: str) -> None:
    async def main() -> None:
        connection = await asyncpg.connect(postgres, database="postgres")
        async with connection.transaction():
            with pytest.raises(ValueError, match="tx is on the database 'postgres', which has no ledger"):
                await AsyncLedger(on_postgres).submit(*new("a"), tx=connection)
            with pytest.raises(TypeError, match="tx is a connection of Postgres; the ledger is on sqlite"):
                await AsyncLedger(on_sqlite).submit(*new("a"), tx=connection)
        await connection.close()

    asyncio.run(main())


@pytest.mark.req("X-1")
def test_the_wrong_object_is_rejected_with_what_to_pass(on_postgres: Ledger, postgres_ledger: str) -> None:
    async def main() -> None:
        aio = AsyncLedger(on_postgres)
        engine = create_async_engine(sqlalchemy_url(postgres_ledger, "asyncpg"))
        pool = asyncpg.create_pool(postgres_ledger, min_size=0)
        await pool
        connection = await asyncpg.connect(postgres_ledger)
        tx: Any
        wrong: dict[Any, str] = {
            engine: "an AsyncEngine of sqlalchemy; pass a connection of it",
            async_sessionmaker(engine): "an async_sessionmaker of sqlalchemy; pass a session of it",
            pool: "a Pool of asyncpg; pass a connection of it, in a transaction",
            connection.transaction(): "a Transaction of asyncpg; pass the connection of the transaction",
            sqlalchemy.create_engine("sqlite://").connect(): "a Connection of sqlalchemy; pass a sync transaction to the sync",
            object(): "an object; pass a sync transaction to the sync method",
        }
        for tx, message in wrong.items():
            with pytest.raises(TypeError, match=f"tx must be an AsyncConnection or an AsyncSession .* here, not {message}"):
                await aio.submit(*new("a"), tx=tx)
        for tx, message in ((connection, "a Connection of asyncpg"), (engine, "an AsyncEngine of sqlalchemy; pass a conn")):
            with pytest.raises(TypeError, match=message):
                on_postgres.submit(*new("a"), tx=tx)
        for tx in (connection, await psycopg.AsyncConnection.connect(postgres_ledger), AsyncSession(engine)):
            with pytest.raises(TypeError, match=r"and this method is sync; use .*command\.using\(tx=tx\)\.asubmit\("):
                on_postgres.submit(*new("a"), tx=tx)
            await tx.close()
        await pool.close()
        await engine.dispose()
        aio.close()

    asyncio.run(main())
    assert on_postgres.counts() == {}


@pytest.mark.req("X-1")
def test_async_scoped_session_carries_the_job(on_postgres: Ledger, postgres_ledger: str) -> None:
    async def main() -> None:
        engine = create_async_engine(sqlalchemy_url(postgres_ledger, "asyncpg"))
        session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        await AsyncLedger(on_postgres).submit(*new("a"), tx=session)
        await session.commit()
        await session.remove()
        await engine.dispose()

    asyncio.run(main())
    assert [job.key for job in on_postgres.jobs("ready")] == ["a"]


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", CALLERS)
def test_every_method_of_an_app_takes_the_transaction(name: str, place: str, ledger: Ledger) -> None:
    app = App(place, destinations=[])

    @app.command("mail.send", key="shop:{user}:{order}:mail:v1")
    def send(order: str, user: str) -> None: ...

    @app.on("order.paid")
    def book(event: Event[dict[str, str]]) -> None: ...

    key = "billing:ann:o-1:refund:v1"
    send.submit("o-1", user="ann")

    async def use_app(tx: Any) -> None:
        assert (await send.using(tx=tx).asubmit("o-2", user="ann")).created
        assert (await app.asignal("shop:ann:o-1:mail:v1", "approved", {"by": "bob"}, tx=tx)).stored
        assert not (await app.asignal("shop:ann:o-1:mail:v1", "approved", {"by": "eve"}, tx=tx)).stored
        assert await app.areceive(Event("order.paid", {"order": "o-1"}, source="shop", id="e-1"), tx=tx)
        assert not await app.areceive(Event("order.paid", {"order": "o-1"}, source="shop", id="e-1"), tx=tx)
        async with app.claim(key, request={"cents": 5}, tx=tx) as claim:
            assert claim.fresh
            claim.response = {"refunded": 5}
        async with app.claim(key, request={"cents": 5}, tx=tx) as claim:
            assert (claim.fresh, claim.response) == (False, {"refunded": 5})
        with pytest.raises(ZeroDivisionError):
            async with app.claim("billing:ann:o-2:refund:v1", tx=tx) as claim:
                raise ZeroDivisionError
        async with app.claim("billing:ann:o-3:refund:v1", tx=tx) as claim:
            claim.free()

    async def main() -> None:
        for is_committed in (False, True):
            async with CALLERS[name](place) as caller:
                await use_app(caller.tx)
                if is_committed:
                    await caller.commit()
                else:
                    await caller.rollback()
                    assert app.keys().find(key) is None

    asyncio.run(main())
    kinds = sorted((job.kind, job.state) for job in app.ledger.jobs("ready"))
    assert [kind for kind, _ in kinds].count("mail.send") == 2
    assert len(kinds) == 3
    statuses = {name: app.keys().find(f"billing:ann:{name}:refund:v1") for name in ("o-1", "o-2", "o-3")}
    assert {name: record and record.status for name, record in statuses.items()} == {
        "o-1": "completed", "o-2": "failed", "o-3": None,
    }  # fmt: skip
    app.close()


@pytest.mark.req("X-1")
def test_a_key_in_another_open_transaction_is_busy(on_postgres: Ledger, postgres_ledger: str) -> None:
    with App(postgres_ledger) as app:

        async def main() -> None:
            first, second = await asyncpg.connect(postgres_ledger), await asyncpg.connect(postgres_ledger)
            async with first.transaction(), second.transaction():
                async with app.claim("billing:ann:o-1:refund:v1", tx=first):
                    pass
                with pytest.raises(KeyBusy):
                    async with app.claim("billing:ann:o-1:refund:v1", tx=second):
                        pass
            await first.close()
            await second.close()

        asyncio.run(main())


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", ["asyncpg", "psycopg"])
def test_a_cancelled_submission_leaves_the_connection_usable(name: str, place: str, ledger: Ledger) -> None:
    """It waits for another transaction with the same key."""

    async def act(aio: AsyncLedger, caller: Caller) -> None:
        with psycopg.connect(place) as holder:
            ledger.submit(*new("a"), tx=holder)
            task = asyncio.create_task(aio.submit(*new("a"), tx=caller.tx))
            with psycopg.connect(place, autocommit=True) as watch:
                waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                while watch.execute(waiting).fetchone() == (0,):  # noqa: ASYNC110  # the server has no event for it
                    await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await caller.rollback()
        async with caller.tx.transaction():
            assert not (await aio.submit(*new("a"), tx=caller.tx)).created
            assert (await aio.submit(*new("b"), tx=caller.tx)).created

    use(name, place, ledger, act)
    assert stored_jobs(ledger)[0] == ["a", "b"]


@pytest.mark.req("X-1")
def test_a_missing_greenlet_is_named(on_postgres: Ledger, postgres_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_transaction, "find_spec", lambda name: None)

    async def main() -> None:
        connection = await asyncpg.connect(postgres_ledger)
        with pytest.raises(ImportError, match=r"^tx is a Connection of asyncpg, which needs greenlet: pip install greenlet$"):
            await AsyncLedger(on_postgres).submit(*new("a"), tx=connection)
        await connection.close()

    asyncio.run(main())


@pytest.mark.req("X-1")
def test_own_classes_of_a_connection_are_accepted(on_postgres: Ledger, postgres_ledger: str) -> None:
    class Traced(asyncpg.Connection):  # type: ignore[misc, type-arg, unused-ignore]
        pass

    class Named(asyncpg.Record):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter(self.keys())

    class Own(psycopg.AsyncConnection[Any]):
        pass

    async def main() -> None:
        aio = AsyncLedger(on_postgres)
        traced = await asyncpg.connect(postgres_ledger, connection_class=Traced, record_class=Named)
        async with traced.transaction():
            assert (await aio.submit(*new("a"), tx=traced)).created
        await traced.close()
        async with await Own.connect(postgres_ledger) as own:
            assert not (await aio.submit(*new("a"), tx=own)).created
        aio.close()

    asyncio.run(main())


def test_statements_are_numbered_for_asyncpg() -> None:
    text = "SELECT %(a)s::TEXT[], %(b)s, '100%%', %(a)s, %(none)s"
    assert asyncpg_statement(text, {"b": 1, "a": "{}", "none": None}) == (
        "SELECT CAST($1 AS text)::TEXT[], CAST($2 AS bigint), '100%', CAST($1 AS text), $3",
        ("{}", 1, None),
    )
    assert asyncpg_statement("SELECT 1", ()) == ("SELECT 1", ())


@pytest.mark.req("X-1")
def test_no_driver_is_imported_before_it_is_used(tmp_path: Path) -> None:
    program = (  # SQLAlchemy 2.0 itself imports greenlet
        "import sys\nimport sqlalchemy\nsqlalchemy.create_engine('sqlite://')\nbefore = set(sys.modules)\n"
        "from redrive import App\nfrom redrive.ledger.db import caller_transaction\n"
        f"app = App({sqlite_ledger(tmp_path)!r})\n"
        "with app.ledger.begin() as tx: app.ledger.counts()\n"
        "names = ('asyncpg', 'psycopg', 'psycopg2', 'django', 'flask', 'sqlmodel', 'greenlet', 'aiosqlite')\n"
        "imported = [name for name in names if name in sys.modules and name not in before]\n"
        "assert not imported, imported"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
