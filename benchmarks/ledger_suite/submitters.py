"""32 threads submit one job at a time, with 32 connections or with one ledger."""

import sqlite3
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from benchmarks.ledger_suite.drain import KIND, PAYLOAD

SUBMITTERS = 32


def measure_rate(act: Callable[[int], None], seconds: float) -> float:
    """Run `act` in all threads and return calls per second."""
    gate = threading.Barrier(SUBMITTERS + 1)
    errors: list[BaseException] = []
    done = [0] * SUBMITTERS

    def run(number: int) -> None:
        try:
            gate.wait()
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                act(number)
                done[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(SUBMITTERS)]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    passed = time.perf_counter() - began
    if errors:
        raise errors[0]
    return sum(done) / passed


class BarePostgres:
    """One connection per thread, a minimal INSERT in autocommit."""

    def __init__(self, url: str) -> None:
        import psycopg

        self.connections = [psycopg.connect(url, autocommit=True) for _ in range(SUBMITTERS)]
        self.connections[0].execute("CREATE TABLE IF NOT EXISTS own (id bigserial PRIMARY KEY, payload bytea)")

    def submit(self, seconds: float) -> float:
        return measure_rate(self._submit, seconds)

    def _submit(self, number: int) -> None:
        self.connections[number].execute("INSERT INTO own (payload) VALUES (%s)", (PAYLOAD,))

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


class SamePostgres:
    """One connection per thread, the statement of the ledger in autocommit, with key, counter and notification."""

    def __init__(self, url: str) -> None:
        import psycopg

        from redrive.ledger import open_ledger
        from redrive.ledger.db.compiled import bytes_array, text_array
        from redrive.ledger.store.postgres.submit import SUBMIT_PLAIN

        open_ledger(url, migrate=True).close()
        self.connections = [psycopg.connect(url, autocommit=True, prepare_threshold=0) for _ in range(SUBMITTERS)]
        self.statement, self.texts, self.blobs = SUBMIT_PLAIN, text_array, bytes_array
        self.numbers = count()

    def submit(self, seconds: float) -> float:
        return measure_rate(self._submit, seconds)

    def _submit(self, number: int) -> None:
        key = f"shop:ann:o-{next(self.numbers):09}:receipt:v1"
        parameters = {"new_kind": self.texts([KIND]), "new_key": self.texts([key]), "new_payload": self.blobs([PAYLOAD])}
        self.connections[number].execute(self.statement, parameters).fetchall()

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


class BareSQLite:
    """One connection per thread, a minimal durable INSERT."""

    def __init__(self, url: str) -> None:
        file = url.removeprefix("sqlite:///")
        self.connections = [
            sqlite3.connect(file, isolation_level=None, timeout=120, check_same_thread=False) for _ in range(SUBMITTERS)
        ]
        self.connections[0].execute("PRAGMA journal_mode=WAL")
        for connection in self.connections:
            connection.execute("PRAGMA synchronous=FULL")
        self.connections[0].execute("CREATE TABLE own (id integer PRIMARY KEY, payload blob)")

    def submit(self, seconds: float) -> float:
        return measure_rate(self._submit, seconds)

    def _submit(self, number: int) -> None:
        self.connections[number].execute("INSERT INTO own (payload) VALUES (?)", (PAYLOAD,))

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


class Shared:
    """One ledger for all threads."""

    def __init__(self, url: str) -> None:
        from redrive.ledger import NewJob, open_ledger

        self.ledger = open_ledger(url, migrate=True)
        self.new = NewJob
        self.numbers = count()

    def submit(self, seconds: float) -> float:
        return measure_rate(lambda _n: self._submit(), seconds)

    def _submit(self) -> None:
        self.ledger.submit(self.new(KIND, f"shop:ann:o-{next(self.numbers):09}:receipt:v1", PAYLOAD))

    def close(self) -> None:
        self.ledger.close()


SAME, BARE = "same statement", "bare row"
SUBJECTS: dict[str, dict[str, Callable[[str], Any]]] = {
    "postgres": {SAME: SamePostgres, BARE: BarePostgres},
    "sqlite": {BARE: BareSQLite},
}
"""Classes by database and by the row that they write."""
BASES = {"postgres": SAME, "sqlite": BARE}
"""Bases of the targets. On Postgres it has the same guarantees: unique key, counter and notification. On SQLite the lock of the
file dominates, so the row does not matter."""
