"""Sync transactions of callers: Django, SQLAlchemy, SQLModel, Flask-SQLAlchemy, and the drivers themselves."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import psycopg.conninfo
import psycopg2
import pytest
import sqlalchemy
from django.core.cache import cache
from django.db import DatabaseError, connections, transaction
from django.db import connection as default_connection
from django.db.transaction import TransactionManagementError
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, sessionmaker
from sqlmodel import Session as SQLModelSession

from redrive import App, Event
from redrive.ledger import AsyncLedger, Ledger, open_ledger
from tests.conformance.ledger.world import new
from tests.django_project import django_databases, django_settings
from tests.ledgers import sqlite_ledger

EFFECT = "INSERT INTO effect VALUES (1)"
ERRORS = (psycopg.Error, psycopg2.Error, sqlite3.Error, DBAPIError, DatabaseError)


class Caller:
    """A connection of one library, in a transaction."""

    def __init__(
        self,
        tx: Any,
        run: Callable[[str], Any],
        commit: Callable[[], Any],
        rollback: Callable[[], Any],
        savepoint: Callable[[], AbstractContextManager[Any]] | None = None,
    ) -> None:
        self.tx = tx
        self.run = run
        self.commit = commit
        self.rollback = rollback
        self.savepoint = savepoint or self._savepoint_in_sql

    @contextmanager
    def _savepoint_in_sql(self) -> Iterator[None]:
        self.run("SAVEPOINT here")
        try:
            yield
        except BaseException:
            self.run("ROLLBACK TO SAVEPOINT here")
            raise
        finally:
            self.run("RELEASE SAVEPOINT here")


Open: TypeAlias = Callable[[str], AbstractContextManager[Caller]]


@contextmanager
def on_sqlite3(url: str) -> Iterator[Caller]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    yield Caller(connection, connection.execute, connection.commit, connection.rollback)
    connection.close()


@contextmanager
def on_psycopg(url: str) -> Iterator[Caller]:
    connection = psycopg.connect(url)
    yield Caller(connection, connection.execute, connection.commit, connection.rollback, connection.transaction)
    connection.close()


@contextmanager
def on_psycopg2(url: str) -> Iterator[Caller]:
    connection = psycopg2.connect(url)
    yield Caller(connection, connection.cursor().execute, connection.commit, connection.rollback)
    connection.close()


def sqlalchemy_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


def on_sqlalchemy(driver: str, kind: type[Session] | None = None) -> Open:
    @contextmanager
    def open_caller(url: str) -> Iterator[Caller]:
        engine = sqlalchemy.create_engine(sqlalchemy_url(url, driver))
        tx: Any
        with engine.connect() if kind is None else kind(engine) as tx:
            run = tx.exec_driver_sql if kind is None else lambda text: tx.connection().exec_driver_sql(text)
            yield Caller(tx, run, tx.commit, tx.rollback, tx.begin_nested)
        engine.dispose()

    return open_caller


@contextmanager
def on_flask(url: str) -> Iterator[Caller]:
    flask = Flask("shop")
    flask.config["SQLALCHEMY_DATABASE_URI"] = sqlalchemy_url(url, "psycopg")
    db = SQLAlchemy(flask)
    with flask.app_context():
        run = lambda text: db.session.execute(sqlalchemy.text(text))  # noqa: E731
        yield Caller(db.session, run, db.session.commit, db.session.rollback, db.session.begin_nested)
        db.session.remove()
        db.engine.dispose()


def on_django(alias: str) -> Open:
    @contextmanager
    def open_caller(url: str) -> Iterator[Caller]:
        with django_databases(**{alias: django_settings(url)}):
            connection = connections[alias]
            block = transaction.atomic(using=alias)
            block.__enter__()

            def run(text: str) -> None:
                with connection.cursor() as cursor:
                    cursor.execute(text)

            def commit() -> None:
                block.__exit__(None, None, None)

            def rollback() -> None:
                connection.set_rollback(True)
                commit()

            tx = default_connection if alias == "default" else connection
            yield Caller(tx, run, commit, rollback, lambda: transaction.atomic(using=alias))

    return open_caller


CALLERS: dict[str, Open] = {
    "sqlite3": on_sqlite3,
    "psycopg": on_psycopg,
    "psycopg2": on_psycopg2,
    "Connection on psycopg2": on_sqlalchemy("psycopg2"),
    "Session on psycopg2": on_sqlalchemy("psycopg2", Session),
    "Session on psycopg": on_sqlalchemy("psycopg", Session),
    "Session on SQLite": on_sqlalchemy("", Session),
    "SQLModel on psycopg": on_sqlalchemy("psycopg", SQLModelSession),
    "SQLModel on SQLite": on_sqlalchemy("", SQLModelSession),
    "Flask-SQLAlchemy on psycopg": on_flask,
    "Flask-SQLAlchemy on SQLite": on_flask,
    "Django on Postgres": on_django("default"),
    "Django on SQLite": on_django("default"),
    "alias of Django on Postgres": on_django("shop"),
    "alias of Django on SQLite": on_django("shop"),
}
ON_POSTGRES = [name for name in CALLERS if not name.endswith(("SQLite", "sqlite3"))]
ON_SQLITE = [name for name in CALLERS if name not in ON_POSTGRES]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> str:
    """The URL of an empty ledger on the database of the caller."""
    url: str = sqlite_ledger(tmp_path) if name in ON_SQLITE else request.getfixturevalue("postgres_ledger")
    return url


@pytest.fixture
def ledger(place: str) -> Iterator[Ledger]:
    """The ledger, and a table of the caller beside it."""
    with open_ledger(place) as open_caller:
        with open_caller.begin() as tx:
            tx.exec_driver_sql("CREATE TABLE effect (n INTEGER)")
        yield open_caller
        assert open_caller.imbalance() == []


def stored_jobs(ledger: Ledger) -> tuple[list[str], int]:
    """Return the keys of the stored jobs, and the number of effects."""
    with ledger.reading() as connection:
        effects = connection.exec_driver_sql("SELECT count(*) FROM effect").scalar_one()
    return sorted(job.key for job in ledger.jobs("ready")), effects


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", CALLERS)
def test_effect_and_jobs_commit_together(name: str, place: str, ledger: Ledger) -> None:
    ledger.submit(*new("known"))
    with CALLERS[name](place) as caller:
        caller.run(EFFECT)
        submitted = ledger.submit_many(new("b", "known", "a"), tx=caller.tx)
        assert [job.created for job in submitted] == [True, False, True]
        assert stored_jobs(ledger) == (["known"], 0)
        caller.commit()
    assert stored_jobs(ledger) == (["a", "b", "known"], 1)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", CALLERS)
def test_rollback_leaves_neither_effect_nor_job(name: str, place: str, ledger: Ledger) -> None:
    with CALLERS[name](place) as caller:
        caller.run(EFFECT)
        assert ledger.submit(*new("a"), tx=caller.tx).created
        caller.rollback()
    assert stored_jobs(ledger) == ([], 0)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", CALLERS)
def test_a_savepoint_takes_only_its_own_jobs_back(name: str, place: str, ledger: Ledger) -> None:
    """For Django, a savepoint is a nested `atomic()`."""
    with CALLERS[name](place) as caller:
        caller.run(EFFECT)
        ledger.submit(*new("outer"), tx=caller.tx)
        with pytest.raises(ZeroDivisionError), caller.savepoint():
            ledger.submit(*new("undone"), tx=caller.tx)
            with caller.savepoint():
                ledger.submit(*new("undone, too"), tx=caller.tx)
            raise ZeroDivisionError
        with caller.savepoint():
            ledger.submit(*new("inner"), tx=caller.tx)
        caller.commit()
    assert stored_jobs(ledger) == (["inner", "outer"], 1)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", CALLERS)
def test_a_read_only_transaction_is_an_error_of_the_driver(name: str, place: str, ledger: Ledger) -> None:
    is_sqlite = name in ON_SQLITE
    with CALLERS[name](place) as caller:
        caller.run("PRAGMA query_only = ON" if is_sqlite else "SET TRANSACTION READ ONLY")
        errors = DatabaseError if "Django" in name else ERRORS  # as for the caller's own statements
        with pytest.raises(errors, match="readonly database" if is_sqlite else "read-only transaction"):
            ledger.submit(*new("a"), tx=caller.tx)
        caller.rollback()
    assert stored_jobs(ledger) == ([], 0)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", ON_POSTGRES)
def test_an_aborted_transaction_is_an_error_of_the_driver(name: str, place: str, ledger: Ledger) -> None:
    with CALLERS[name](place) as caller:
        caller.run(EFFECT)
        with pytest.raises(ERRORS):
            caller.run("SELECT * FROM nowhere")
        with pytest.raises(DatabaseError if "Django" in name else ERRORS, match="transaction is aborted"):
            ledger.submit(*new("a"), tx=caller.tx)
        caller.rollback()
    assert stored_jobs(ledger) == ([], 0)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", CALLERS)
def test_every_method_of_an_app_takes_the_transaction(name: str, place: str, ledger: Ledger) -> None:
    app = App(place)

    @app.command("mail.send", key="shop:{user}:{order}:mail:v1")
    def send(order: str, user: str) -> None: ...

    @app.on("order.paid")
    def book(event: Event[dict[str, str]]) -> None: ...

    key = "billing:ann:o-1:refund:v1"
    send.submit("o-1", user="ann")
    for is_committed in (False, True):
        with CALLERS[name](place) as caller:
            tx = caller.tx
            caller.run(EFFECT)
            assert send.using(tx=tx).submit("o-2", user="ann").created
            assert app.submit_many([send.bind("o-3", user="ann")], tx=tx)[0].created
            assert app.signal("shop:ann:o-1:mail:v1", "approved", {"by": "bob"}, tx=tx).stored
            assert not app.signal("shop:ann:o-1:mail:v1", "approved", {"by": "eve"}, tx=tx).stored
            assert app.receive(Event("order.paid", {"order": "o-1"}, source="shop", id="e-1"), tx=tx)
            with app.claim(key, request={"cents": 5}, tx=tx) as claim:
                assert claim.fresh
                claim.response = {"refunded": 5}
            with app.claim(key, request={"cents": 5}, tx=tx) as claim:
                assert (claim.fresh, claim.response) == (False, {"refunded": 5})
            (caller.commit if is_committed else caller.rollback)()
            assert (app.keys().find(key) is None) is not is_committed
    kinds = [job.kind for job in app.ledger.jobs("ready")]
    assert (len(kinds), kinds.count("mail.send")) == (4, 3)
    app.close()


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", [name for name in CALLERS if "Django" in name])
def test_django_outside_of_atomic_is_rejected(name: str, place: str, ledger: Ledger) -> None:
    alias = "shop" if "alias" in name else "default"
    fix = f"Django's connection '{alias}' is in autocommit mode; use `with transaction.atomic(using='{alias}'):`"
    with django_databases(**{alias: django_settings(place)}):
        connection = connections[alias]
        with pytest.raises(ValueError, match="^tx has no open transaction, because ") as raised:
            ledger.submit(*new("a"), tx=connection)
        assert str(raised.value).endswith(fix)
        connection.set_autocommit(False)
        if "SQLite" in name:  # there Django only stops to begin transactions, and the driver begins them
            connection.cursor().execute("BEGIN IMMEDIATE")
        ledger.submit(*new("without atomic"), tx=connection)
        connection.commit()
        connection.set_autocommit(True)
    assert stored_jobs(ledger)[0] == ["without atomic"]


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", ["Django on Postgres", "Django on SQLite"])
def test_a_broken_atomic_block_is_an_error_of_django(name: str, place: str, ledger: Ledger) -> None:
    """Without a savepoint, an error in an inner block rolls the outer block back at its end."""
    with CALLERS[name](place) as caller:
        with pytest.raises(ZeroDivisionError), transaction.atomic(savepoint=False):
            raise ZeroDivisionError
        with pytest.raises(TransactionManagementError, match="until the end of the 'atomic' block"):
            ledger.submit(*new("a"), tx=caller.tx)
        caller.rollback()
    assert stored_jobs(ledger) == ([], 0)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", ["Django on Postgres"])
def test_django_on_another_database_is_rejected(name: str, place: str, ledger: Ledger, tmp_path: Path, postgres: str) -> None:
    with on_django("shop")(sqlite_ledger(tmp_path)) as caller:
        with pytest.raises(TypeError, match="^tx is Django's connection 'shop' to sqlite; the ledger is on postgresql$"):
            ledger.submit(*new("a"), tx=caller.tx)
        caller.rollback()
    with on_django("shop")(psycopg.conninfo.make_conninfo(postgres, dbname="postgres")) as caller:
        with pytest.raises(ValueError, match="tx is on the database 'postgres', which has no ledger"):
            ledger.submit(*new("a"), tx=caller.tx)
        caller.rollback()


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", ["Django on Postgres"])
def test_the_wrong_object_is_rejected_with_what_to_pass(name: str, place: str, ledger: Ledger) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    connection = psycopg.connect(place)
    wrong: dict[Any, str] = {
        engine: "an Engine of sqlalchemy; pass a connection of it, as in `with engine.begin",
        sessionmaker(engine): "a sessionmaker of sqlalchemy; pass a session of it",
        connection.cursor(): "a Cursor of psycopg; pass the connection of the cursor",
        transaction.atomic(): "an Atomic of django; pass `django.db.connection`, inside the block",
        SQLAlchemy(): "a SQLAlchemy of flask_sqlalchemy; pass `db.session`",
    }
    for tx, message in wrong.items():
        with pytest.raises(TypeError, match=f"^tx must be an open SQLAlchemy connection .*, not {message}"):
            ledger.submit(*new("a"), tx=tx)
    with pytest.raises(TypeError, match="^tx must be an open SQLAlchemy connection .* not a ConnectionProxy of django"):
        ledger.submit(*new("a"), tx=cache)
    connection.close()
    assert stored_jobs(ledger) == ([], 0)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", CALLERS)
def test_an_async_method_rejects_a_sync_transaction(name: str, place: str, ledger: Ledger) -> None:
    with CALLERS[name](place) as caller:
        rejected = "^tx must be an AsyncConnection .* here, not an? .*; pass a sync transaction to the sync method$"
        with pytest.raises(TypeError, match=rejected):
            asyncio.run(AsyncLedger(ledger).submit(*new("a"), tx=caller.tx))
        caller.rollback()


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", ["Session on SQLite", "Session on psycopg", "Session on psycopg2"])
def test_an_engine_in_autocommit_is_rejected(name: str, place: str, ledger: Ledger) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(place, name.rpartition(" ")[2]), isolation_level="AUTOCOMMIT")
    with Session(engine) as session, pytest.raises(ValueError, match="because it is in autocommit mode; begin one"):
        ledger.submit(*new("a"), tx=session)
    engine.dispose()
    assert stored_jobs(ledger) == ([], 0)


@pytest.mark.req("X-1")
@pytest.mark.parametrize("name", ["sqlite3"])
def test_begin_by_an_event_of_sqlalchemy_is_a_transaction(name: str, place: str, ledger: Ledger) -> None:
    """The recipe of SQLAlchemy for savepoints on SQLite: the driver begins nothing, and an event executes BEGIN."""
    engine = sqlalchemy.create_engine(place)

    @sqlalchemy.event.listens_for(engine, "connect")
    def stop_the_driver(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    with Session(engine) as session:
        ledger.submit(*new("undone"), tx=session)
        session.rollback()
        ledger.submit(*new("kept"), tx=session)
        session.commit()
    engine.dispose()
    assert stored_jobs(ledger)[0] == ["kept"]


@pytest.mark.req("X-1")
@pytest.mark.skipif(sys.version_info < (3, 12), reason="`autocommit` of sqlite3 is new in Python 3.12")
@pytest.mark.parametrize("name", ["sqlite3"])
def test_sqlite3_in_autocommit_is_rejected(name: str, place: str, ledger: Ledger) -> None:
    options: dict[str, Any] = {"autocommit": True}
    connection = sqlite3.connect(place.removeprefix("sqlite:///"), **options)
    with pytest.raises(ValueError, match="tx has no open transaction; execute BEGIN IMMEDIATE first"):
        ledger.submit(*new("a"), tx=connection)
    connection.execute("BEGIN IMMEDIATE")
    ledger.submit(*new("a"), tx=connection)
    connection.execute("COMMIT")
    connection.close()
    assert stored_jobs(ledger)[0] == ["a"]
