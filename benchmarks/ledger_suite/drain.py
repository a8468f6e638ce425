"""Loops that process empty jobs: a minimal loop on each database, and the ledger."""

import sqlite3
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Protocol

PAYLOAD = b'{"id": 1, "f": "noop", "a": []}'
KIND = "noop"


class Drain(Protocol):
    """A queue of empty jobs."""

    def fill(self, jobs: int, /) -> None:
        """Enqueue jobs. This is not timed."""

    def drain(self, jobs: int, batch: int, seconds: float, /) -> float:
        """Claim and settle jobs until all are done or the time is up. Return jobs per second."""

    def close(self) -> None:
        """Close the database."""


class RawPostgres:
    """A SKIP LOCKED loop: one statement claims, one marks as done. It has no keys, leases or fencing tokens."""

    TABLE = """
    CREATE TABLE IF NOT EXISTS raw (
      id bigserial PRIMARY KEY, payload jsonb, status text NOT NULL DEFAULT 'queued', attempts int NOT NULL DEFAULT 0,
      run_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz);
    CREATE INDEX IF NOT EXISTS raw_queued ON raw (run_at, id) WHERE status = 'queued'
    """
    CLAIM = """
    UPDATE raw SET status = 'running', attempts = attempts + 1, updated_at = now() WHERE id = any(array(
      SELECT id FROM raw WHERE status = 'queued' AND run_at <= now() ORDER BY run_at, id LIMIT %s FOR UPDATE SKIP LOCKED))
    RETURNING id, payload
    """
    DONE = "UPDATE raw SET status = 'done', updated_at = now() WHERE id = any(%s)"

    def __init__(self, url: str) -> None:
        import psycopg

        self.connection: Any = psycopg.connect(url, autocommit=True)
        self.connection.execute(self.TABLE)

    def fill(self, jobs: int, /) -> None:
        self.connection.execute(
            "INSERT INTO raw (payload) SELECT %s::jsonb FROM generate_series(1, %s)", (PAYLOAD.decode(), jobs)
        )
        self.connection.execute("ANALYZE raw")

    def drain(self, jobs: int, batch: int, seconds: float, /) -> float:
        run = self.connection.execute
        began, done = time.perf_counter(), 0
        while done < jobs and time.perf_counter() - began < seconds:
            ids = [row[0] for row in run(self.CLAIM, (batch,)).fetchall()]
            run(self.DONE, (ids,))
            done += len(ids)
        return done / (time.perf_counter() - began)

    def close(self) -> None:
        self.connection.close()


class RawSQLite:
    """The durable minimum: store the attempt before the work and its end afterwards."""

    CLAIM = """
    UPDATE raw SET status = 'running', attempts = attempts + 1, updated_at = ? WHERE id IN (
      SELECT id FROM raw WHERE status = 'queued' AND run_at <= ? ORDER BY run_at, id LIMIT ?) RETURNING id, payload
    """

    def __init__(self, file: Path) -> None:
        self.connection = sqlite3.connect(file, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")
        self.connection.execute(
            "CREATE TABLE raw (id integer PRIMARY KEY, payload text, status text NOT NULL DEFAULT 'queued', "
            "attempts int NOT NULL DEFAULT 0, run_at real NOT NULL DEFAULT 0, updated_at real)"
        )
        self.connection.execute("CREATE INDEX raw_queued ON raw (status, run_at, id)")

    def fill(self, jobs: int, /) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO raw (payload) VALUES (?)", [(PAYLOAD,)] * jobs)
        self.connection.execute("COMMIT")

    def drain(self, jobs: int, batch: int, seconds: float, /) -> float:
        run = self.connection.execute
        began, done = time.perf_counter(), 0
        while done < jobs and time.perf_counter() - began < seconds:
            rows = run(self.CLAIM, (time.time(), time.time(), batch)).fetchall()
            run("BEGIN IMMEDIATE")
            ended = [(time.time(), row[0]) for row in rows]
            self.connection.executemany("UPDATE raw SET status = 'done', updated_at = ? WHERE id = ?", ended)
            run("COMMIT")
            done += len(rows)
        return done / (time.perf_counter() - began)

    def close(self) -> None:
        self.connection.close()


class LedgerDrain:
    """The loop of the worker: each turn settles finished jobs and claims due jobs."""

    def __init__(self, url: str) -> None:
        from redrive.ledger import open_ledger

        self.ledger = open_ledger(url, migrate=True)
        self.numbers = count()

    def fill(self, jobs: int, /, *, by: int = 1000) -> None:
        from redrive.ledger import NewJob

        names = [f"shop:ann:o-{next(self.numbers):09}:receipt:v1" for _ in range(jobs)]
        for at in range(0, jobs, by):
            self.ledger.submit_many([NewJob(KIND, name, PAYLOAD) for name in names[at : at + by]])
        analyze(self.ledger)

    def drain(self, jobs: int, batch: int, seconds: float, /) -> float:
        turn, kinds = self.ledger.turn, {KIND: batch}
        began, done = time.perf_counter(), 0
        settlements: Sequence[Any] = ()
        while done < jobs and time.perf_counter() - began < seconds:
            leases = turn(settlements, kinds, worker="bench").leases
            settlements = [lease.done() for lease in leases]
            done += len(leases)
        self.ledger.settle(settlements)
        return done / (time.perf_counter() - began)

    def close(self) -> None:
        self.ledger.close()


def analyze(ledger: Any) -> None:
    """Update the statistics, as autovacuum would. The raw loop does the same."""
    if ledger.url.startswith("postgres"):
        with ledger.begin() as connection:
            connection.exec_driver_sql("ANALYZE redrive_job")
