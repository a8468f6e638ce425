"""A ledger that goes away while a worker works: what runs goes on, is told of when the ledger is back, and nothing is lost."""

from __future__ import annotations

import sqlite3
import time

import psycopg

from redrive.ledger import Lease, Ledger, open_ledger
from redrive.worker.worker import Worker

from .world import heard, kind, submit, until


def cut(url: str, spared: set[int]) -> None:
    """Everybody's connection but these; on SQLite, somebody else writes for a second."""
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
    """The processes of all connections."""
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
    with open_ledger(url) as theirs, heard() as records, Worker(theirs, [kind("mail", work)]) as worker:
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
