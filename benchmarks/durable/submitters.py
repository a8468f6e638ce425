"""Many who submit at the same time, one job each time: by connections of their own, and through one ledger."""

import sqlite3
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from benchmarks.durable.drain import KIND, PAYLOAD

SUBMITTERS = 32


def together(act: Callable[[int], None], seconds: float) -> float:
    """All the threads do it for so long; acts in a second."""
    gate = threading.Barrier(SUBMITTERS + 1)
    failed: list[BaseException] = []
    done = [0] * SUBMITTERS

    def run(number: int) -> None:
        try:
            gate.wait()
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                act(number)
                done[number] += 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(SUBMITTERS)]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    passed = time.perf_counter() - began
    if failed:
        raise failed[0]
    return sum(done) / passed


class OwnPostgres:
    """A connection for each, an INSERT in autocommit."""

    def __init__(self, url: str) -> None:
        import psycopg

        self.connections = [psycopg.connect(url, autocommit=True) for _ in range(SUBMITTERS)]
        self.connections[0].execute("CREATE TABLE IF NOT EXISTS own (id bigserial PRIMARY KEY, payload bytea)")

    def submit(self, seconds: float) -> float:
        return together(self._one, seconds)

    def _one(self, number: int) -> None:
        self.connections[number].execute("INSERT INTO own (payload) VALUES (%s)", (PAYLOAD,))

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


class SamePostgres:
    """A connection for each, and the ledger's own statement in autocommit: the key, the count and the notification with it."""

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
        return together(self._one, seconds)

    def _one(self, number: int) -> None:
        key = f"shop:ann:o-{next(self.numbers):09}:receipt:v1"
        given = {"new_kind": self.texts([KIND]), "new_key": self.texts([key]), "new_payload": self.blobs([PAYLOAD])}
        self.connections[number].execute(self.statement, given).fetchall()

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


class OwnSQLite:
    """The same on SQLite, durable."""

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
        return together(self._one, seconds)

    def _one(self, number: int) -> None:
        self.connections[number].execute("INSERT INTO own (payload) VALUES (?)", (PAYLOAD,))

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


class Shared:
    """One ledger for all."""

    def __init__(self, url: str) -> None:
        from redrive.ledger import NewJob, open_ledger

        self.ledger = open_ledger(url, migrate=True)
        self.new = NewJob
        self.numbers = count()

    def submit(self, seconds: float) -> float:
        return together(lambda _n: self._one(), seconds)

    def _one(self) -> None:
        self.ledger.submit(self.new(KIND, f"shop:ann:o-{next(self.numbers):09}:receipt:v1", PAYLOAD))

    def close(self) -> None:
        self.ledger.close()


SAME, BARE = "the same job", "a bare row"
SUBJECTS: dict[str, dict[str, Callable[[str], Any]]] = {
    "postgres": {SAME: SamePostgres, BARE: OwnPostgres},
    "sqlite": {BARE: OwnSQLite},
}
"""By database: what those with connections of their own write."""
JUDGED = {"postgres": SAME, "sqlite": BARE}
"""What is promised is the same contract: a job that is there once for its key, is counted, and wakes a worker. On SQLite the bare
row does for it: there it is the file's lock that costs, whatever is written."""
