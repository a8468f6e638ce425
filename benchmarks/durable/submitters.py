"""Many who submit at the same time, one job each time: by connections of their own, and through one ledger."""

import sqlite3
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

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


class OwnSQLite:
    """The same on SQLite, durable."""

    def __init__(self, file: Path) -> None:
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
