"""A connection that neither responds nor ends: detected, bounded, and no obstacle to a stop."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from redrive.errors import LedgerUnavailable
from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.db import schema
from redrive.ledger.db.postgres import TIMEOUTS, Servers, connect
from redrive.ledger.db.silence_watch import Watch
from redrive.ledger.jobs.erase import UserData
from redrive.ops import Operator
from redrive.ops.user_data import Erasure
from redrive.worker.worker import Worker
from tests.servers.relay import Relay

from .world import kind, submit, until

SOON = 30.0
"""Seconds. Without a bound these tests would not end."""


@contextmanager
def relayed_ledger(url: str) -> Iterator[tuple[Relay, str]]:
    """A relay before the server, and the ledger's address through it."""
    parts = urlsplit(url)
    assert parts.port is not None
    with Relay(parts.port) as relay:
        yield relay, parts._replace(netloc=f"{parts.username}@127.0.0.1:{relay.port}").geturl()
        relay.go_on()


def test_a_submit_on_a_silent_connection_fails_in_time_and_the_next_one_does_not(postgres_ledger: str) -> None:
    with relayed_ledger(postgres_ledger) as (relay, url), open_ledger(url) as ledger:
        ledger.submit(NewJob("mail", "a"))
        ledger.connections.limit_silence(0.5)
        relay.hold()
        began = time.monotonic()
        with pytest.raises(LedgerUnavailable) as caught:
            ledger.submit(NewJob("mail", "b"))
        assert caught.value.sent, "the server may have it"
        assert time.monotonic() - began < SOON
        relay.go_on()
        ledger.submit(NewJob("mail", "c"))


def test_many_statements_that_are_each_answered_in_time_are_not_cut(postgres_ledger: str) -> None:
    """Silence is counted for each statement, not for the whole time that a session is in use."""
    with open_ledger(postgres_ledger) as ledger:
        ledger.connections.limit_silence(1.5)
        with ledger.connections.write.use() as session, session.transaction("fold") as connection:
            for _ in range(8):
                connection.exec_driver_sql("SELECT pg_sleep(0.4)")
        assert session.is_reusable
        with pytest.raises(LedgerUnavailable), ledger.connections.write.use() as session:
            session.raw.execute("SELECT pg_sleep(20)")


NOTHING = Erasure("ann", 0, 0, 0, 0, (), 0, UserData(), 0, ())
ACTS: dict[str, Callable[[Ledger], object]] = {
    "recount": lambda ledger: ledger.recount(actor="ann", because="rows were removed"),
    "erasure planned": lambda ledger: Operator(ledger, actor="bob").user_data.plan_erasure("ann"),
    "erasure": lambda ledger: Operator(ledger, actor="bob").user_data.erase(NOTHING, because="asked for"),
    "audit": lambda ledger: ledger.audit_broken(),
    "audit verified": lambda ledger: Operator(ledger, actor="bob").audit.verify(),
    "prune": lambda ledger: ledger.prune(0),
}


@pytest.mark.req("L-1")
@pytest.mark.parametrize("act", ACTS)
def test_maintenance_outlasts_the_bound_of_a_statement(postgres_ledger: str, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    """Maintenance reads or rewrites whole tables. `statement_timeout` and the watch cover frequent statements."""
    monkeypatch.setattr("redrive.ledger.db.postgres.MARGIN", 0.0, raising=False)
    monkeypatch.setattr("redrive.ledger.db.silence_watch.LOOK", 0.05)
    bounded = f"{postgres_ledger}?options=-c%20statement_timeout%3D300ms"
    with open_ledger(bounded) as ledger, psycopg.connect(postgres_ledger) as other, ThreadPoolExecutor(1) as threads:
        other.execute("LOCK TABLE redrive_job, redrive_audit, redrive_key IN ACCESS EXCLUSIVE MODE")
        running = threads.submit(ACTS[act], ledger)
        wait({running}, timeout=1.0)
        early = running.done()
        other.rollback()
        running.result(60)
        assert not early
        with ledger.connections.write.use() as session:
            assert session.raw.execute("SHOW statement_timeout").fetchone()[0] == "300ms"
            assert session.raw.patience == session.raw.usual


@pytest.mark.req("L-1")
def test_a_migration_outlasts_the_bound_of_a_statement(postgres_db: str) -> None:
    bounded = f"{postgres_db}?options=-c%20statement_timeout%3D300ms"
    with psycopg.connect(postgres_db) as other, ThreadPoolExecutor(1) as threads:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (schema.MIGRATION_LOCK,))
        running = threads.submit(open_ledger, bounded, migrate=True)
        wait({running}, timeout=1.0)
        early = running.done()
        other.rollback()
        with running.result(60) as ledger:
            assert not early
            ledger.submit(NewJob("mail", "a"))


def test_the_watch_waits_as_long_as_your_own_statement_timeout(postgres_ledger: str) -> None:
    for own, patience in (("2min", 125.0), ("1500ms", 6.5), ("0", 35.0)):
        url = f"{postgres_ledger}?options=-c%20statement_timeout%3D{own}"
        with open_ledger(url) as ledger, ledger.connections.write.use() as session:
            assert session.raw.patience == patience
    with open_ledger(f"{postgres_ledger}?options=-c%20statement_timeout%3D2min") as ledger:
        watch = ledger.connections._watch
        assert watch is not None
        with ledger.connections.write.use() as session:
            running = threading.Thread(target=session.raw.execute, args=("SELECT pg_sleep(1)",))
            running.start()
            until(lambda: bool(watch._since))
            assert watch.cut_silent(time.monotonic() + 60) == 0
            running.join(SOON)


def test_a_callers_own_statement_has_no_timeout(postgres_ledger: str) -> None:
    with open_ledger(postgres_ledger) as ledger:
        ledger.connections.limit_silence(0.2)
        with ledger.begin() as connection:
            connection.exec_driver_sql("SELECT pg_sleep(1.5)")
            timeout = connection.exec_driver_sql("SHOW statement_timeout").scalar_one()
        with ledger.connections.write.use() as session:
            assert (timeout, session.raw.execute("SHOW statement_timeout").fetchone()[0]) == ("0", "30s")


def test_a_worker_detects_a_silent_connection_and_continues_when_it_is_back(postgres_ledger: str) -> None:
    with (
        relayed_ledger(postgres_ledger) as (relay, url),
        open_ledger(url) as ledger,
        open_ledger(postgres_ledger) as mine,
        Worker(ledger, [kind("mail", lambda lease: None)]) as worker,
    ):
        until(lambda: worker.status.state == "working")
        worker._dispatcher_ledger.connections.limit_silence(0.5)
        relay.hold()
        until(lambda: worker.status.trouble is not None and not worker.is_healthy)
        relay.go_on()
        (job_id,) = submit(mine, "mail")
        until(lambda: (job := mine.get(job_id)) is not None and job.state == "done", worker.status)
        until(lambda: worker.is_healthy)


def test_health_means_that_turns_are_completed(ledger: Ledger) -> None:
    with Worker(ledger, [kind("mail", lambda lease: None)]) as worker:
        until(lambda: worker.status.state == "working")
        assert worker.is_healthy
    assert worker._dispatcher is not None
    worker._dispatcher.last_turn_at -= 3600  # as if the ledger thread were blocked since then
    assert worker.status.trouble is None
    assert not worker.is_healthy


@pytest.mark.parametrize("way", ["drain", "now"])
def test_a_worker_ends_within_its_drain_while_the_connection_is_silent(postgres_ledger: str, way: str) -> None:
    release = threading.Event()
    try:
        with relayed_ledger(postgres_ledger) as (relay, url), open_ledger(url) as ledger, open_ledger(postgres_ledger) as mine:
            worker = Worker(ledger, [kind("mail", lambda lease: release.wait(120) and None)], drain=1.0)
            running = threading.Thread(target=worker.run, daemon=True)
            running.start()
            submit(mine, "mail")
            until(lambda: worker.status.running == 1)
            relay.hold()
            worker.stop()
            if way == "now":
                worker.stop(now=True)
            running.join(SOON)
            assert not running.is_alive()
            assert worker.problem is not None
    finally:
        release.set()


def test_a_worker_ends_within_its_drain_while_the_server_is_down(postgres_ledger: str) -> None:
    release = threading.Event()
    parts = urlsplit(postgres_ledger)
    assert parts.port is not None
    try:
        with open_ledger(postgres_ledger) as mine, Relay(parts.port) as relay:
            ledger = open_ledger(parts._replace(netloc=f"{parts.username}@127.0.0.1:{relay.port}").geturl())
            worker = Worker(ledger, [kind("mail", lambda lease: release.wait(120) and None)], drain=0.2).start()
            submit(mine, "mail")
            until(lambda: worker.status.running == 1)
            relay._script = ["silent"]  # a new connection gets no response for connect_timeout
            relay.drop()
            began = time.monotonic()
            worker.close()
            assert time.monotonic() - began < 9, "the time to connect alone is 10 s"
            assert worker.problem is not None
            ledger.close()
    finally:
        release.set()


def test_timeouts_are_set_unless_the_address_sets_them(postgres_ledger: str) -> None:
    with connect(Servers(postgres_ledger)) as connection:
        given = conninfo_to_dict(connection.info.dsn)
        assert {name: int(str(given[name])) for name in TIMEOUTS} == TIMEOUTS
        sock = socket.socket(fileno=connection.fileno())
        try:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == TIMEOUTS["tcp_user_timeout"]
        finally:
            sock.detach()
    own = "connect_timeout=3&tcp_user_timeout=9000&options=-c%20statement_timeout%3D7s"
    with connect(Servers(f"{postgres_ledger}?{own}")) as connection:
        given = conninfo_to_dict(connection.info.dsn)
        assert (str(given["connect_timeout"]), str(given["tcp_user_timeout"])) == ("3", "9000")
        assert connection.execute("SHOW statement_timeout").fetchone() == ("7s",)


def test_the_watch_closes_only_connections_with_an_overdue_response() -> None:
    watch = Watch(patience=10.0)
    mine, theirs = socket.socketpair()
    with mine, theirs:
        line = watch.open(mine.fileno())
        assert watch.cut_silent(time.monotonic() + 60) == 0, "nothing is due"
        watch.begin(line)
        assert watch.cut_silent(time.monotonic()) == 0
        watch.end(line)
        assert watch.cut_silent(time.monotonic() + 60) == 0
        watch.begin(line)
        assert watch.cut_silent(time.monotonic() + 60) == 1
        assert watch.has_cut(line)
        assert mine.recv(1) == b"", "whoever waits there is told"
        watch.close(line)
        assert not watch.has_cut(line)


def test_a_statement_that_takes_too_long_is_a_ledger_fault(postgres_ledger: str) -> None:
    """Another transaction holds the key for longer than `statement_timeout`: unavailable, and not written."""
    url = f"{postgres_ledger}?options=-c%20statement_timeout%3D300ms"
    with psycopg.connect(postgres_ledger) as other, open_ledger(url) as ledger:
        ledger.submit(NewJob("mail", "x"), tx=other)
        with pytest.raises(LedgerUnavailable, match="timeout") as caught:
            ledger.submit(NewJob("mail", "x"))
        assert not caught.value.sent
        other.rollback()
