"""A ledger that is unavailable while a worker runs: running jobs continue, are settled when it is back, and none is lost."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from redrive import RetryPolicy
from redrive.errors import LedgerUnavailable
from redrive.ledger import Lease, Ledger, NewJob, open_ledger
from redrive.worker.worker import Worker
from tests.ledgers import sqlite_ledger

from .world import kind, record_log, submit, until, wait_for_jobs


def cut(url: str, spared: set[int]) -> None:
    """Cut all connections except these. On SQLite, another writer blocks for a second."""
    if url.startswith("sqlite"):
        writer = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        time.sleep(1.0)
        writer.close()
        return
    for _ in range(3):
        with psycopg.connect(url, autocommit=True) as other:
            for pid in backends(url) - spared - {other.info.backend_pid}:
                other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        time.sleep(0.1)


def backends(url: str) -> set[int]:
    """Return the process ids of all connections."""
    if url.startswith("sqlite"):
        return set()
    with psycopg.connect(url, autocommit=True) as other:
        found = other.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()").fetchall()
        return {row[0] for row in found} - {other.info.backend_pid}


def test_all_connections_are_cut(shared: Ledger, url: str) -> None:
    ran: list[int] = []

    def work(lease: Lease) -> None:
        ran.append(lease.job_id)
        time.sleep(0.01)

    ids = submit(shared, "mail", 100)
    shared.counts()
    spared = backends(url)
    with open_ledger(url) as theirs, record_log() as records, Worker(theirs, [kind("mail", work)]) as worker:
        until(lambda: len(ran) > 20)
        cut(url, spared)
        until(lambda: all(job is not None and job.state == "done" for job in map(shared.get, ids)), worker.status)
        until(lambda: worker.status.trouble is None)
        submit(shared, "mail", 110)
        until(lambda: shared.counts()["mail"].done == 110)
    assert len(set(ran)) == 110
    assert all(job is not None and job.crashes == 0 for job in map(shared.get, ids))
    if not url.startswith("sqlite"):
        assert "ledger_trouble" in [record.kind for record in records]


@contextmanager
def limited(url: str) -> Iterator[tuple[str, Callable[[int], None]]]:
    """The URL of a role with a connection limit, and a function that sets the limit."""
    role = f"limited_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN".encode())
        owner.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}".encode())
        owner.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}".encode())

        def limit(most: int) -> None:
            owner.execute(f"ALTER ROLE {role} CONNECTION LIMIT {most}".encode())

        try:
            parts = urlsplit(url)
            yield parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl(), limit
        finally:
            owner.execute(f"DROP OWNED BY {role}".encode())
            owner.execute(f"DROP ROLE {role}".encode())


@pytest.mark.req("L-7")
@pytest.mark.parametrize("way", ["begin", "submit", "in_transaction"])
def test_a_job_is_not_charged_for_a_ledger_connection_that_cannot_be_made(postgres_ledger: str, way: str) -> None:
    once = RetryPolicy(max_attempts=1, backoff_base=0.05, backoff_max=0.1, jitter=0.0)

    def work(*given: Any) -> None:
        if way == "submit":
            theirs.submit(NewJob("note", f"of {given[0].key}"))
        elif way == "begin":
            with theirs.begin() as connection:
                connection.exec_driver_sql("SELECT 1")

    work_kind = kind("mail", work, "transaction" if way == "in_transaction" else "thread", policy=once)
    with limited(postgres_ledger) as (url, limit), open_ledger(postgres_ledger) as mine, open_ledger(url) as theirs:
        with record_log() as records, Worker(theirs, [work_kind]) as worker:
            done = submit(mine, "mail", 1)
            wait_for_jobs(mine, *done)  # the worker has its own connections by now
            for pool in (theirs.connections.write, theirs.connections.group_commit):
                pool.drop_idle()  # its jobs must open new ones
            limit(0)
            ids = [mine.submit(NewJob("mail", f"refused {n}")).id for n in range(5)]
            until(lambda: sum(record.fields.get("reason") == "ledger" for record in list(records)) >= 10, worker.status)
            limit(-1)
            jobs = wait_for_jobs(mine, *ids)
        assert [(job.state, job.attempts) for job in jobs] == [("done", 1)] * 5
        assert mine.dead_letters() == []


def test_an_error_that_names_the_ledger_as_its_cause_is_not_charged(ledger: Ledger) -> None:
    failures = iter([LedgerUnavailable("away")])

    def work(lease: Lease) -> None:
        for failure in failures:
            raise ValueError("cannot save") from failure

    (job_id,) = submit(ledger, "mail", max_attempts=1)
    with Worker(ledger, [kind("mail", work)]):
        (job,) = wait_for_jobs(ledger, job_id)
    assert (job.state, job.attempts) == ("done", 1)


def demote(ledger: Ledger) -> None:
    """All open connections reject writes, like those to an old primary. New ones reach the new primary."""
    pools = {ledger.connections.write, ledger.connections.group_commit}
    sessions = [(pool, pool.acquire()) for pool in pools for _ in range(1 if pool is ledger.connections.group_commit else 3)]
    for pool, session in sessions:
        session.raw.execute("SET default_transaction_read_only = on")
        session.expects_writes = False  # Postgres 13 does not report the change: only the next write shows it
        pool.release(session)


def test_connections_to_a_demoted_primary_are_dropped(postgres_ledger: str) -> None:
    with open_ledger(postgres_ledger) as ledger:
        demote(ledger)
        assert ledger.submit(NewJob("mail", "a")).created, "retried on a new connection"
        demote(ledger)
        with pytest.raises(LedgerUnavailable, match="read-only"):
            ledger.maintenance.heartbeat("w")
        for _ in range(4):
            ledger.maintenance.heartbeat("w")
        ledger.connections.write.drop_idle()


def test_a_worker_continues_after_its_primary_was_demoted(postgres_ledger: str) -> None:
    with open_ledger(postgres_ledger) as ledger, Worker(ledger, [kind("mail", lambda lease: None)]) as worker:
        (first,) = submit(ledger, "mail")
        wait_for_jobs(ledger, first)
        demote(ledger)
        demote(worker._dispatcher_ledger)
        second = ledger.submit(NewJob("mail", "second")).id
        assert wait_for_jobs(ledger, second)[0].state == "done"


def test_a_worker_ends_when_its_sqlite_file_was_removed(tmp_path: Path) -> None:
    with open_ledger(sqlite_ledger(tmp_path)) as ledger:
        worker = Worker(ledger, [kind("mail", lambda lease: None)]).start()
        until(lambda: worker.status.state == "working")
        for file in tmp_path.iterdir():
            file.unlink()
        until(lambda: worker.status.state == "ended", worker.status)
        worker.close()
    assert worker.problem is not None
    assert "was removed or moved while in use" in worker.problem
