"""Errors of real Postgres, SQLite and Redis servers and of their drivers, directly and through SQLAlchemy."""

from __future__ import annotations

import sqlite3
import threading
import time
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
import sqlalchemy as sa
from redis.backoff import NoBackoff
from redis.retry import Retry

from redrive.core.fault import Fault
from redrive.testing.http_server import refused, unreachable
from tests.acceptance.classify.clients import catch_fault

pytestmark = pytest.mark.req("C-3")
ONCE = Retry(NoBackoff(), 0)


@pytest.fixture
def table(postgres_db: str) -> str:
    with psycopg.connect(postgres_db) as connection:
        connection.execute("CREATE TABLE t (i int PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1)")
    return postgres_db


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("INSERT INTO t VALUES (1)", Fault("permanent")),
        ("INSERT INTO t VALUES (NULL)", Fault("permanent")),
        ("SELEC", Fault("permanent")),
        ("SELECT * FROM nowhere", Fault("permanent")),
        ("SELECT 1/0", Fault("permanent")),
        ("SET statement_timeout = 50; SELECT pg_sleep(5)", Fault("timeout")),
        ("DO $$BEGIN RAISE SQLSTATE '25006'; END$$", Fault("transient")),
        ("DO $$BEGIN RAISE SQLSTATE '40001'; END$$", Fault("transient")),
        ("DO $$BEGIN RAISE SQLSTATE '40P01'; END$$", Fault("transient")),
        ("DO $$BEGIN RAISE SQLSTATE '53200'; END$$", Fault("transient")),
        ("DO $$BEGIN RAISE SQLSTATE '57P02'; END$$", Fault("transient")),
        ("DO $$BEGIN RAISE SQLSTATE '58030'; END$$", Fault("transient")),
        ("DO $$BEGIN RAISE SQLSTATE 'XX000'; END$$", Fault("unknown")),
    ],
)
def test_statement_errors_are_classified(table: str, statement: str, fault: Fault) -> None:
    with psycopg.connect(table, autocommit=True) as connection:
        assert catch_fault(lambda: connection.execute(statement.encode()))[1] == fault
    engine = sa.create_engine(table.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as wrapped:
        error, through = catch_fault(lambda: wrapped.exec_driver_sql(statement))
        assert isinstance(error, sa.exc.DBAPIError)
        assert through == fault
    engine.dispose()


def test_a_serialization_failure_is_transient(table: str) -> None:
    with psycopg.connect(table) as one, psycopg.connect(table) as other:
        for connection in (one, other):
            connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            connection.execute("SELECT sum(i) FROM t")
        one.execute("INSERT INTO t VALUES (10)")
        other.execute("INSERT INTO t VALUES (11)")
        one.commit()
        assert catch_fault(other.commit)[1] == Fault("transient")


def test_a_table_lock_held_by_another_is_transient(table: str) -> None:
    with psycopg.connect(table) as holder, psycopg.connect(table) as waiter:
        holder.execute("LOCK TABLE t")
        assert catch_fault(lambda: waiter.execute("LOCK TABLE t NOWAIT"))[1] == Fault("transient")


def test_a_connection_closed_by_the_administrator_is_transient(table: str) -> None:
    with psycopg.connect(table, autocommit=True) as admin:
        victim = psycopg.connect(table)
        admin.execute("SELECT pg_terminate_backend(%s)", [victim.info.backend_pid])
        time.sleep(0.1)
        assert catch_fault(lambda: victim.execute("SELECT 1"))[1] == Fault("transient")
        assert catch_fault(lambda: victim.execute("SELECT 1"))[1] == Fault("transient")
        victim.close()


@pytest.mark.req("C-10")
def test_an_unreachable_postgres_is_transient() -> None:
    with refused() as url:
        port = url.rpartition(":")[2]
        assert catch_fault(lambda: psycopg.connect(f"host=127.0.0.1 port={port}"))[1] == Fault("transient", sent=False)
        engine = sa.create_engine(f"postgresql+psycopg://nobody@127.0.0.1:{port}/x")
        assert catch_fault(engine.connect)[1] == Fault("transient", sent=False)
    assert catch_fault(lambda: psycopg.connect("host=no-such-host.invalid"))[1] == Fault("transient", sent=False)


@pytest.mark.req("C-10")
def test_a_silent_postgres_is_a_timeout() -> None:
    with unreachable() as url:
        info = f"host=127.0.0.1 port={url.rpartition(':')[2]} connect_timeout=1"
        assert catch_fault(lambda: psycopg.connect(info))[1] == Fault("timeout", sent=False)


def test_a_missing_postgres_database_is_permanent(postgres: str) -> None:
    nowhere = urlsplit(postgres)._replace(path="/nowhere").geturl()
    assert catch_fault(lambda: psycopg.connect(nowhere))[1] == Fault("permanent", sent=False)


def test_an_exhausted_connection_pool_is_a_timeout(table: str) -> None:
    url = table.replace("postgresql:", "postgresql+psycopg:")
    engine = sa.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    with engine.connect():
        assert catch_fault(engine.connect)[1] == Fault("timeout", sent=False)
    engine.dispose()


def test_a_locked_sqlite_file_is_transient(tmp_path: Path) -> None:
    file = tmp_path / "some.db"
    holder, waiter = sqlite3.connect(file, isolation_level=None), sqlite3.connect(file, timeout=0)
    holder.execute("CREATE TABLE t (i PRIMARY KEY)")
    holder.execute("BEGIN IMMEDIATE")
    assert catch_fault(lambda: waiter.execute("INSERT INTO t VALUES (1)"))[1] == Fault("transient")
    engine = sa.create_engine(f"sqlite:///{file}", connect_args={"timeout": 0})
    with engine.connect() as connection:
        assert catch_fault(lambda: connection.exec_driver_sql("INSERT INTO t VALUES (1)"))[1] == Fault("transient")
    holder.execute("INSERT INTO t VALUES (1)")
    assert catch_fault(lambda: holder.execute("INSERT INTO t VALUES (1)"))[1] == Fault("permanent")
    assert catch_fault(lambda: holder.execute("SELECT * FROM nowhere"))[1].kind == "unknown"
    holder.close()
    waiter.close()
    engine.dispose()


def client(url: str, **settings: Any) -> redis.Redis:
    return redis.Redis.from_url(url, retry=ONCE, **settings)


def test_redis_errors_are_classified(redis_url: str) -> None:
    key = f"classify:{uuid.uuid4()}"
    with client(redis_url) as connection:
        connection.set(key, "text", ex=60)
        assert catch_fault(lambda: connection.lpush(key, 1))[1] == Fault("permanent")
        assert catch_fault(lambda: connection.evalsha("0" * 40, 0))[1] == Fault("permanent")
        with client(redis_url) as other, connection.pipeline() as pipe:
            pipe.watch(key)
            other.set(key, "changed", ex=60)
            pipe.multi()
            pipe.set(key, "lost")
            assert catch_fault(pipe.execute)[1] == Fault("transient")
    with client(redis_url, username="nobody", password="wrong") as stranger:
        assert catch_fault(stranger.ping)[1] == Fault("permanent")


def test_a_late_redis_response_is_a_timeout(redis_url: str) -> None:
    with client(redis_url, socket_timeout=0.2) as connection:
        assert catch_fault(lambda: connection.blpop(["classify:never"], timeout=30))[1] == Fault("timeout")


@pytest.mark.req("C-10")
def test_an_unreachable_redis_means_that_nothing_was_sent() -> None:
    with refused() as url, client(url.replace("http", "redis")) as connection:
        assert catch_fault(connection.ping)[1] == Fault("transient", sent=False)
    with unreachable() as url, client(url.replace("http", "redis"), socket_connect_timeout=0.2) as connection:
        assert catch_fault(connection.ping)[1] == Fault("timeout", sent=False)
    with client("redis://no-such-host.invalid") as connection:
        assert catch_fault(connection.ping)[1] == Fault("transient", sent=False)


def test_a_connection_cut_by_redis_is_transient(redis_url: str) -> None:
    with client(redis_url) as admin, client(redis_url, single_connection_client=True) as victim:
        number = str(victim.client_id())
        cut = threading.Timer(0.2, lambda: admin.client_kill_filter(_id=number))
        cut.start()
        assert catch_fault(lambda: victim.blpop(["classify:never"], timeout=30))[1] == Fault("transient")
        cut.join()
