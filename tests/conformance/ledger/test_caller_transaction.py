"""The caller's transaction: effect and job commit together, or neither does."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.orm import Session

from redrive.errors import LeaseLost, LedgerError, LedgerUnavailable
from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.db import schema, sqlite
from redrive.ledger.db.connections import POSTGRES_POOL_SIZE
from tests.conformance.ledger.world import KIND, claim, keys, new, rows, tally
from tests.ledgers import sqlite_ledger

EFFECT = "INSERT INTO effect VALUES (1)"


def engine(url: str) -> sqlalchemy.Engine:
    made = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS effect (n INTEGER)")
    return made


def driver(url: str, **options: Any) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"), **options)
    return psycopg.connect(url, **options)


@pytest.mark.req("L-5")
@pytest.mark.parametrize("how", ["connection", "session", "driver"])
@pytest.mark.parametrize("commit", [True, False])
def test_effect_and_job_commit_together(url: str, shared: Ledger, how: str, commit: bool) -> None:
    made = engine(url)
    shared.submit(*new("known"))
    if how == "connection":
        with made.connect() as connection:
            connection.exec_driver_sql(EFFECT)
            found = shared.submit_many(new("b", "known", "a"), tx=connection)
            (connection.commit if commit else connection.rollback)()
    elif how == "session":
        with Session(made) as session:
            session.execute(sqlalchemy.text(EFFECT))
            found = shared.submit_many(new("b", "known", "a"), tx=session)
            (session.commit if commit else session.rollback)()
    else:
        connection = driver(url)
        connection.execute(EFFECT)
        found = shared.submit_many(new("b", "known", "a"), tx=connection)
        (connection.commit if commit else connection.rollback)()
        connection.close()
    made.dispose()
    assert [one.created for one in found] == [True, False, True]
    assert rows(shared, "SELECT count(*) FROM effect") == [(int(commit),)]
    assert keys(claim(shared)) == ({"a", "b", "known"} if commit else {"known"})


@pytest.mark.req("L-5")
def test_a_row_factory_of_the_caller_has_no_effect(url: str, shared: Ledger) -> None:
    if url.startswith("sqlite"):
        connection = driver(url)
        connection.row_factory = lambda cursor, row: {"row": row}
    else:
        connection = driver(url, row_factory=dict_row)
    assert [one.created for one in shared.submit_many(new("a", "a", "b"), tx=connection)] == [True, False, True]
    assert not shared.submit(*new("a"), tx=connection).created
    connection.commit()
    connection.close()
    assert tally(shared).submitted == 2


@pytest.mark.req("L-5")
def test_begin_commits_effect_and_job_together(ledger: Ledger) -> None:
    with pytest.raises(ZeroDivisionError), ledger.begin() as tx:
        ledger.submit_many(new("a"), tx=tx)
        _ = 1 / 0
    assert ledger.find(KIND, "a") is None
    with ledger.begin() as tx:
        tx.execute(sqlalchemy.text("CREATE TABLE effect (n INTEGER)"))
        ledger.submit_many(new("a"), tx=tx)
    assert keys(claim(ledger)) == {"a"}


@pytest.mark.req("L-5", "L-4")
def test_a_late_settle_in_a_transaction_rolls_the_effect_back(ledger: Ledger) -> None:
    ledger.submit_many(new("a", "b"))
    first, second = claim(ledger)
    with ledger.begin() as tx:
        ledger.settle(first.done(b"x"), tx=tx)
    with pytest.raises(LeaseLost), ledger.begin() as tx:
        ledger.submit_many(new("effect"), tx=tx)
        ledger.settle(first.done(b"y"), tx=tx)
    ledger.maintenance.count_late([first.done()])
    with pytest.raises(ZeroDivisionError), ledger.begin() as tx:
        ledger.settle(second.dead("x"), tx=tx)
        _ = 1 / 0
    assert ledger.find(KIND, "effect") is None
    assert tally(ledger) == (2, 0, 1, 1, 0, 0, 0, 1, 0)
    ledger.settle(second.done())


@pytest.mark.req("L-5")
def test_an_open_transaction_does_not_block_other_submitters(on_postgres: Ledger, postgres_ledger: str) -> None:
    """All jobs have the same type, so both transactions change its counts."""
    with psycopg.connect(postgres_ledger) as held:
        on_postgres.submit(*new("mine"), tx=held)
        start = time.perf_counter()
        on_postgres.submit_many(new("yours", "theirs"))
        assert keys(claim(on_postgres)) == {"yours", "theirs"}
        on_postgres.maintenance.fold_counters()
        assert time.perf_counter() - start < 30
        assert on_postgres.imbalance() == []
    assert on_postgres.submit(*new("mine")).created is False
    assert tally(on_postgres).submitted == 3


@pytest.mark.req("L-5")
def test_another_submitter_of_the_same_key_waits_for_the_transaction(on_postgres: Ledger, postgres_ledger: str) -> None:
    found: list[Any] = []
    with psycopg.connect(postgres_ledger) as held:
        on_postgres.submit(*new("a"), tx=held)
        thread = threading.Thread(target=lambda: found.append(on_postgres.submit(*new("a"))))
        thread.start()
        time.sleep(0.2)
        assert found == []
        held.rollback()
        thread.join(60)
    assert found[0].created


@pytest.mark.req("L-5")
def test_an_invalid_transaction_is_rejected(url: str, shared: Ledger, tmp_path: Path) -> None:
    other: Any
    with pytest.raises(TypeError, match="tx must be an open SQLAlchemy connection"):
        shared.submit(*new("a"), tx=object())  # type: ignore[arg-type]
    if url.startswith("sqlite"):
        other = sqlite3.connect(tmp_path / "other.db", isolation_level=None)
        with pytest.raises(ValueError, match="tx has no open transaction"):
            shared.submit(*new("a"), tx=other)
        other.execute("BEGIN")
        fix = "open tx on the ledger's database, or pass the address of tx's database to App"
        with pytest.raises(ValueError, match=rf"tx is on the database .*other\.db.*; {fix}"):
            shared.submit(*new("a"), tx=other)
        other.close()
    else:
        other = sqlite3.connect(":memory:")
        with pytest.raises(TypeError, match="tx is a connection of SQLite; the ledger is on postgresql"):
            shared.submit(*new("a"), tx=other)
        other.close()
        with psycopg.connect(url, autocommit=True) as idle, pytest.raises(ValueError, match="tx has no open transaction"):
            shared.submit(*new("a"), tx=idle)
        with (
            psycopg.connect(url, dbname="postgres") as elsewhere,
            pytest.raises(ValueError, match="'postgres', which has no ledger"),
        ):
            shared.submit(*new("a"), tx=elsewhere)
    made = engine(url)
    with made.connect().execution_options(isolation_level="AUTOCOMMIT") as auto, pytest.raises(ValueError, match="autocommit"):
        shared.submit(*new("a"), tx=auto)
    made.dispose()
    assert shared.counts() == {}


def test_a_ledger_in_memory_accepts_only_its_own_transaction(tmp_path: Path) -> None:
    stranger = sqlite3.connect(":memory:", isolation_level=None)
    stranger.execute("BEGIN")
    with open_ledger("sqlite://") as ledger, pytest.raises(ValueError, match=r"with ledger\.begin\(\)"):
        ledger.submit(NewJob(KIND, "a"), tx=stranger)
    stranger.close()


@pytest.mark.req("L-5")
def test_an_async_transaction_of_the_caller(on_postgres: Ledger, postgres_ledger: str) -> None:
    pytest.importorskip("greenlet", reason="what SQLAlchemy's asyncio needs")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    from redrive.ledger import AsyncLedger

    async def main() -> None:
        aio = AsyncLedger(on_postgres)
        made = create_async_engine(postgres_ledger.replace("postgresql://", "postgresql+psycopg://"))
        async with made.connect() as connection:
            assert (await aio.submit(*new("rolled back"), tx=connection)).created
            await connection.rollback()
        async with AsyncSession(made) as session:
            assert (await aio.submit(*new("kept"), tx=session)).created
            await session.commit()
        with pytest.raises(TypeError, match="AsyncConnection or an AsyncSession"):
            await aio.submit(*new("x"), tx=object())  # type: ignore[arg-type]
        async with AsyncSession(made) as session:
            with pytest.raises(TypeError, match=r"tx is an AsyncSession of sqlalchemy, .*using\(tx=tx\)\.asubmit\("):
                on_postgres.submit(*new("x"), tx=session)  # type: ignore[arg-type]
        await made.dispose()
        aio.close()

    asyncio.run(main())
    assert keys(claim(on_postgres)) == {"kept"}


@pytest.mark.req("L-5")
def test_a_call_beside_a_transaction_of_the_same_thread_is_an_error(shared: Ledger, url: str) -> None:
    """On SQLite it would wait for itself, so it fails immediately. On Postgres it is a separate transaction."""
    shared.submit_many(new("a", "b"))
    lease, other = claim(shared)
    verbs: list[Callable[[], object]] = [
        lambda: shared.submit(*new("c")), lambda: claim(shared), lambda: shared.settle(lease.done()),
        lambda: shared.renew([other]), shared.reap, lambda: shared.maintenance.heartbeat("w"), shared.maintenance.fold_counters,
        lambda: shared.discard([1], actor="ann", because="test"),
    ]  # fmt: skip
    with shared.begin() as tx:
        for verb in verbs:
            if url.startswith("sqlite"):
                with pytest.raises(RuntimeError, match="this thread is in a transaction of its own on this SQLite ledger"):
                    verb()
            else:
                verb()
        shared.settle(other.done(), tx=tx)
        assert shared.find(KIND, "a") is not None  # readers do not wait
    assert tally(shared).done == (1 if url.startswith("sqlite") else 2)
    assert shared.imbalance() == []


def test_threads_with_all_connections_get_an_extra_one(on_postgres: Ledger) -> None:
    """Each of them would wait for the others, and no transaction would end."""
    together = threading.Barrier(POSTGRES_POOL_SIZE)
    failed: list[BaseException] = []

    def inside(number: int) -> None:
        for turn in range(3):
            with on_postgres.begin() as tx:
                if turn == 0:
                    together.wait(60)
                on_postgres.submit(*new(f"inside {turn} {number}"), tx=tx)
                on_postgres.submit(*new(f"beside {turn} {number}"))
                on_postgres.maintenance.heartbeat(f"w{number}")

    def plain(number: int) -> None:
        for turn in range(3):
            on_postgres.submit(*new(f"plain {turn} {number}"))

    def caught(act: Callable[[int], None], number: int) -> None:
        try:
            act(number)
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=caught, args=(act, number), daemon=True)
        for act in (inside, plain)
        for number in range(POSTGRES_POOL_SIZE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failed
    assert not any(thread.is_alive() for thread in threads)
    assert tally(on_postgres).submitted == POSTGRES_POOL_SIZE * 9


@pytest.mark.req("L-5")
def test_a_ledger_opens_inside_of_the_callers_own_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 1.0)
    url = sqlite_ledger(tmp_path)
    made = engine(url)
    with open_ledger(url), Session(made) as session:  # as an earlier program left the file
        session.execute(sqlalchemy.text(EFFECT))
        with open_ledger(url, migrate=True) as ledger:
            ledger.submit(*new("a"), tx=session)
            session.commit()
            assert keys(claim(ledger)) == {"a"}
    made.dispose()


def test_a_submit_without_tx_beside_an_open_write_names_tx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    url = sqlite_ledger(tmp_path)
    made = engine(url)
    with open_ledger(url) as ledger, Session(made) as session:
        session.execute(sqlalchemy.text(EFFECT))
        with pytest.raises(LedgerUnavailable, match="database is locked; if your own transaction .* pass it as tx="):
            ledger.submit(*new("a"))
    made.dispose()


def test_creating_a_ledger_inside_the_callers_transaction_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATION_SECONDS", 0.05)
    made = engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with Session(made) as session:
        session.execute(sqlalchemy.text(EFFECT))
        with pytest.raises(LedgerError, match=f"before it begins.*migrate --ledger sqlite:///{tmp_path}/shop.db`"):
            open_ledger(f"sqlite:///{tmp_path / 'shop.db'}", migrate=True)
        session.commit()
    made.dispose()
    open_ledger(f"sqlite:///{tmp_path / 'shop.db'}", migrate=True).close()
