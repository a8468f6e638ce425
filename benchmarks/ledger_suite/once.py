"""`once` compared with bare statements: INSERT and UPDATE for a first call, SELECT for a repeated call."""

import sqlite3
import time
from collections.abc import Iterator
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

RESPONSE = b'{"id": 1, "paid": true}'


class BareStatements:
    """A minimal idempotency table. It has no leases, fencing tokens or check of the request."""

    def __init__(self, connection: Any, mark: str) -> None:
        self.connection = connection
        blob = "bytea" if mark == "%s" else "blob"
        connection.execute(
            "CREATE TABLE bare (key text PRIMARY KEY, status text NOT NULL, hash text, "
            f"answer {blob}, begun_at double precision, ended_at double precision)"
        )
        self._begin = (
            f"INSERT INTO bare (key, status, hash, begun_at) VALUES ({mark}, 'processing', {mark}, {mark}) ON CONFLICT DO NOTHING"
        )
        self._end = f"UPDATE bare SET status = 'completed', answer = {mark}, ended_at = {mark} WHERE key = {mark}"
        self._select = f"SELECT status, hash, answer FROM bare WHERE key = {mark}"

    @classmethod
    def on(cls, url: str) -> "BareStatements":
        if url.startswith("sqlite"):
            connection = sqlite3.connect(Path(url.removeprefix("sqlite:///")), isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            return cls(connection, "?")
        import psycopg

        return cls(psycopg.connect(url, autocommit=True), "%s")

    def first(self, number: int) -> None:
        key = f"billing:ann:o-{number:09}:charge:v1"
        self.connection.execute(self._begin, (key, "hash", time.time()))
        self.connection.execute(self._end, (RESPONSE, time.time(), key))

    def again(self, number: int) -> None:
        self.connection.execute(self._select, (f"billing:ann:o-{number:09}:charge:v1",)).fetchone()

    def close(self) -> None:
        self.connection.close()


class Once:
    """An empty function with `@app.once`."""

    def __init__(self, url: str) -> None:
        from redrive.app import App

        self.app = App(url, migrate=True)

        @self.app.once("billing:ann:{order}:charge:v1")
        def charge(order: str) -> dict[str, bool]:
            return {"paid": True}

        self.charge = charge

    def first(self, number: int) -> None:
        self.charge(f"o-{number:09}")

    again = first

    def close(self) -> None:
        self.app.close()


class Timer:
    """Measures microseconds per first call and per repeated call."""

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        self.numbers = count()

    def run(self, seconds: float) -> tuple[float, float]:
        numbers: list[int] = []

        def new_numbers() -> Iterator[int]:
            for number in self.numbers:
                numbers.append(number)
                yield number

        return self._measure(self.subject.first, new_numbers(), seconds), self._measure(
            self.subject.again, cycle(numbers), seconds
        )

    @staticmethod
    def _measure(act: Any, numbers: Iterator[int], seconds: float) -> float:
        began, calls = time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < seconds or not calls:
            for number in islice(numbers, 5):
                act(number)
            calls += 5
        return passed / calls * 1e6

    def close(self) -> None:
        self.subject.close()
