"""`claim` on both databases: sync, async, and in the transaction of the caller."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.orm import Session

from redrive import App, current
from redrive.errors import KeyBusy, KeyConflict, KeyFailed
from redrive.ledger import open_ledger
from tests.conformance.idempotency.world import KEY, effect_table, effects


@pytest.mark.req("I-4")
def test_a_block_runs_once(app: App) -> None:
    with app.claim(KEY, request={"cents": 100}) as claim:
        assert claim.fresh
        assert claim.key == current().key == KEY
        claim.response = {"receipt": 1}
    with app.claim(str(KEY), request={"cents": 100}) as claim:
        assert not claim.fresh
        assert claim.response == {"receipt": 1}
        with pytest.raises(RuntimeError, match="already has its result"):
            claim.response = 2
    with pytest.raises(KeyConflict), app.claim(KEY, request={"cents": 200}):
        pass
    assert current().key is None


@pytest.mark.req("I-3", "I-4")
def test_the_end_of_a_block_settles_the_key(app: App) -> None:
    with app.claim(KEY) as claim, pytest.raises(KeyBusy), app.claim(KEY):
        pass
    with app.claim(KEY) as claim:
        assert (claim.fresh, claim.response) == (False, None)  # no response was set
    app.keys().release(KEY, actor="ann", because="test")
    with pytest.raises(TimeoutError), app.claim(KEY):
        raise TimeoutError
    with app.claim(KEY) as claim:
        assert claim.fresh
        claim.free()
    with pytest.raises(ZeroDivisionError), app.claim(KEY, free_on=ArithmeticError):
        _ = 1 / 0
    with pytest.raises(TypeError, match="cannot be stored as JSON"), app.claim(KEY, free_on=TypeError) as claim:
        claim.response = object()
    with pytest.raises(ValueError, match="no"), app.claim(KEY):
        raise ValueError("no")
    with pytest.raises(KeyFailed), app.claim(KEY):
        pass


@pytest.mark.req("I-4")
def test_async_blocks(app: App) -> None:
    async def one() -> Any:
        async with app.claim(KEY, request=b"bytes", wait=20) as claim:
            if claim.fresh:
                await asyncio.sleep(0.05)
                claim.response = [1]
            return claim.fresh, claim.response

    async def main() -> None:
        found = await asyncio.gather(*(one() for _ in range(4)))
        assert sorted(found) == [(False, [1])] * 3 + [(True, [1])]

    asyncio.run(main())


def test_a_claim_is_entered_only_once(app: App) -> None:
    claiming = app.claim(KEY)
    with claiming, pytest.raises(RuntimeError, match="already in use"), claiming:
        pass


def engine_of(url: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


@pytest.mark.req("I-5", "L-5")
@pytest.mark.parametrize("how", ["connection", "session", "driver"])
def test_a_claim_in_the_callers_transaction(app: App, url: str, how: str) -> None:
    effect_table(app)
    engine = engine_of(url)

    def work(commit: bool) -> bool:
        """Work in one transaction of the caller. Returns whether the claim was fresh."""
        tx: Any
        if how == "connection":
            tx = engine.connect()
        elif how == "session":
            tx = Session(engine)
        elif url.startswith("sqlite"):
            tx = sqlite3.connect(url.removeprefix("sqlite:///"))
        else:
            tx = psycopg.connect(url)
        statement: Any = "INSERT INTO effect VALUES ('x')" if how == "driver" else text("INSERT INTO effect VALUES ('x')")
        try:
            with app.claim(KEY, request=1, tx=tx) as claim:
                if claim.fresh:
                    tx.execute(statement)
                    claim.response = "done"
                fresh = claim.fresh
            tx.commit() if commit else tx.rollback()
            return fresh
        finally:
            tx.close()

    assert work(commit=False)  # the rollback removes the effect and the key
    assert (effects(app), app.keys().page()) == (0, [])
    assert work(commit=True)
    assert not work(commit=True)
    assert effects(app) == 1
    with app.claim(KEY, request=1) as claim:
        assert claim.response == "done"
    engine.dispose()


def test_a_failure_inside_the_callers_transaction(app: App, url: str) -> None:
    engine = engine_of(url)
    with engine.begin() as tx:
        with pytest.raises(TimeoutError), app.claim(KEY, tx=tx):
            raise TimeoutError
        with app.claim(KEY, tx=tx) as claim:
            assert claim.fresh
    with engine.begin() as tx, app.claim(KEY, tx=tx) as claim:
        assert not claim.fresh
    with pytest.raises(sqlalchemy.exc.SQLAlchemyError) as spoilt, engine.begin() as tx, app.claim("a:b:c:d:e", tx=tx):
        tx.execute(text("SELECT nonsense FROM nowhere"))
    if not url.startswith("sqlite"):
        assert any("could not be settled" in note for note in spoilt.value.__notes__)
    assert app.keys().find("a:b:c:d:e") is None
    engine.dispose()


def test_a_second_transaction_on_one_key_is_busy_immediately(postgres_ledger: str) -> None:
    """The second transaction does not wait for the commit of the first one."""
    with App(postgres_ledger) as app, psycopg.connect(postgres_ledger) as one, psycopg.connect(postgres_ledger) as two:
        with app.claim(KEY, tx=one) as claim:
            claim.response = 1
        with pytest.raises(KeyBusy), app.claim(KEY, tx=two):
            pass
        one.commit()
        with app.claim(KEY, tx=two) as again:
            assert again.response == 1


def test_a_transaction_of_another_database_is_rejected(app: App, tmp_path: Any) -> None:
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with other.connect() as tx, pytest.raises((TypeError, ValueError), match="tx is"), app.claim(KEY, tx=tx):
        pass
    with pytest.raises(TypeError, match="tx must be an open SQLAlchemy connection"), app.claim(KEY, tx="no"):  # type: ignore[arg-type]
        pass
    other.dispose()

    async def main() -> None:
        with pytest.raises(TypeError, match="AsyncConnection"):
            async with app.claim(KEY, tx=other):  # type: ignore[arg-type]
                pass

    asyncio.run(main())


class Async:
    """An AsyncConnection with `run_sync`, without greenlet."""

    def __init__(self, connection: sqlalchemy.Connection) -> None:
        self.connection = connection

    async def run_sync(self, fn: Any, *args: Any) -> Any:
        return fn(self.connection, *args)


def test_an_async_transaction(app: App, url: str) -> None:
    async def main() -> None:
        for fresh in (True, False):
            with engine.begin() as connection:
                async with app.claim(KEY, tx=Async(connection)) as claim:  # type: ignore[arg-type]
                    assert claim.fresh is fresh
                    if fresh:
                        claim.response = 5
                    assert claim.response == 5

    engine = engine_of(url)
    asyncio.run(main())
    engine.dispose()


def test_an_app_on_an_open_ledger(url: str) -> None:
    with open_ledger(url, migrate=True) as ledger:
        with App(ledger) as app:
            assert app.ledger is ledger
            with app.claim(KEY):
                pass
        assert ledger.counts() == {}  # still open
