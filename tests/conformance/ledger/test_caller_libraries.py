"""Transactions of other libraries: Flask-SQLAlchemy, scoped sessions, psycopg2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import scoped_session, sessionmaker

from redrive import App
from redrive.ledger import Ledger, NewJob
from tests.ledgers import sqlite_ledger


@pytest.fixture
def sqlite_app(tmp_path: Path) -> Iterator[App]:
    with App(sqlite_ledger(tmp_path)) as app:
        yield app


def keys_of(ledger: Ledger) -> list[str]:
    return [job.key for job in ledger.jobs("ready")]


@pytest.mark.req("L-5")
def test_flask_sqlalchemy_session_carries_the_job(sqlite_app: App) -> None:
    flask = Flask("shop")
    flask.config["SQLALCHEMY_DATABASE_URI"] = sqlite_app.url
    db = SQLAlchemy(flask)
    with flask.app_context():
        sqlite_app.ledger.submit(NewJob("mail", "rolled back"), tx=db.session)
        db.session.rollback()
        sqlite_app.ledger.submit(NewJob("mail", "committed"), tx=db.session)
        db.session.commit()
        db.engine.dispose()
    assert keys_of(sqlite_app.ledger) == ["committed"]


def test_scoped_session_carries_the_job(sqlite_app: App) -> None:
    engine = sqlalchemy.create_engine(sqlite_app.url)
    session = scoped_session(sessionmaker(engine))
    sqlite_app.ledger.submit(NewJob("mail", "committed"), tx=session)
    session.commit()
    session.remove()
    engine.dispose()
    assert keys_of(sqlite_app.ledger) == ["committed"]


@pytest.mark.req("L-5")
@pytest.mark.parametrize("factory", [None, psycopg2.extras.DictCursor, psycopg2.extras.RealDictCursor])
def test_psycopg2_connection_carries_jobs_and_keys(postgres_ledger: str, factory: Any) -> None:
    with App(postgres_ledger) as app, ExitStack() as stack:
        connection = psycopg2.connect(postgres_ledger, cursor_factory=factory)
        stack.callback(connection.close)
        app.ledger.submit_many([NewJob("mail", "rolled back"), NewJob("mail", "too")], tx=connection)
        connection.rollback()
        app.ledger.submit_many([NewJob("mail", "a", payload=b'{"x":1}'), NewJob("mail", "b")], tx=connection)
        with app.claim("billing:ann:o-1:refund:v1", request={"cents": 5}, tx=connection) as claim:
            claim.response = {"refunded": 5}
        with app.claim("billing:ann:o-1:refund:v1", request={"cents": 5}, tx=connection) as claim:
            assert (claim.fresh, claim.response) == (False, {"refunded": 5})
        connection.commit()
        assert sorted(keys_of(app.ledger)) == ["a", "b"]
        record = app.keys().find("billing:ann:o-1:refund:v1")
        assert record is not None
        assert record.status == "completed"


def test_sqlalchemy_connection_on_psycopg2_carries_jobs_and_keys(postgres_ledger: str) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(postgres_ledger).set(drivername="postgresql+psycopg2"))
    with App(postgres_ledger) as app, engine.connect() as connection:
        app.ledger.submit(NewJob("mail", "rolled back"), tx=connection)
        connection.rollback()
        for _ in range(2):
            app.ledger.submit(NewJob("mail", "a"), tx=connection)
            with app.claim("billing:ann:o-1:refund:v1", request={"cents": 5}, tx=connection) as claim:
                if claim.fresh:
                    claim.response = {"refunded": 5}
                assert claim.response == {"refunded": 5}
        connection.commit()
        assert keys_of(app.ledger) == ["a"]
    engine.dispose()


def test_psycopg2_connection_in_autocommit_is_rejected(postgres_ledger: str) -> None:
    with App(postgres_ledger) as app:
        connection = psycopg2.connect(postgres_ledger)
        connection.autocommit = True
        with pytest.raises(ValueError, match="tx has no open transaction"):
            app.ledger.submit(NewJob("mail", "a"), tx=connection)
        with pytest.raises(TypeError, match="a connection of psycopg2, not its cursor"):
            app.ledger.submit(NewJob("mail", "a"), tx=connection.cursor())
        connection.close()
