"""The least that a consumer can do: python -m benchmarks.streamed.floor WHERE REDIS_URL BATCH MESSAGES

WHERE is a ledger's address: then each batch is written in one transaction before it is acknowledged, a row for the message and a
row for its handler, as done. There is no attempt, no lease, no retry in it. WHERE is `nowhere`: read and acknowledge.
"""

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from benchmarks.apart import tell
from benchmarks.streamed.clock import GROUP, STREAM, Clock, fill

Write = Callable[[Sequence[Any]], object]


@contextmanager
def on_sqlite(url: str) -> Iterator[Write]:
    """WAL, synchronous=FULL."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE message (stream text, id text, payload blob, status text, attempts int, created real, "
        "PRIMARY KEY (stream, id)) WITHOUT ROWID"
    )
    connection.execute(
        "CREATE TABLE run (stream text, id text, handler text, status text, at real, "
        "PRIMARY KEY (stream, id, handler)) WITHOUT ROWID"
    )

    def write(entries: Sequence[Any]) -> None:
        now = time.time()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO message VALUES ('s', ?, ?, 'done', 1, ?) ON CONFLICT DO NOTHING",
            [(entry_id, fields[b"payload"], now) for entry_id, fields in entries],
        )
        connection.executemany(
            "INSERT INTO run VALUES ('s', ?, 'h', 'done', ?) ON CONFLICT DO NOTHING", [(entry_id, now) for entry_id, _ in entries]
        )
        connection.execute("COMMIT")

    with closing(connection):
        yield write


@contextmanager
def on_postgres(url: str) -> Iterator[Write]:
    """One statement, in autocommit."""
    import psycopg

    connection = psycopg.connect(url, autocommit=True)
    connection.execute(
        "CREATE TABLE message (stream text, id text, payload bytea, status text, attempts int, "
        "created timestamptz DEFAULT now(), PRIMARY KEY (stream, id))"
    )
    connection.execute(
        "CREATE TABLE run (stream text, id text, handler text, status text, at timestamptz DEFAULT now(), "
        "PRIMARY KEY (stream, id, handler))"
    )
    text = """
    WITH stored AS (
      INSERT INTO message (stream, id, payload, status, attempts)
      SELECT 's', new.id, new.payload, 'done', 1 FROM unnest(%s::text[], %s::bytea[]) new (id, payload) ON CONFLICT DO NOTHING)
    INSERT INTO run (stream, id, handler, status) SELECT 's', id, 'h', 'done' FROM unnest(%s::text[]) id ON CONFLICT DO NOTHING
    """

    def write(entries: Sequence[Any]) -> None:
        ids = [entry_id.decode() for entry_id, _ in entries]
        connection.execute(text, (ids, [fields[b"payload"] for _, fields in entries], ids))

    with closing(connection):
        yield write


@contextmanager
def nowhere(_: str) -> Iterator[Write]:
    yield lambda _entries: None


def measured(where: str, redis_url: str, batch: str, many: str) -> float:
    """In a second."""
    import redis

    place = nowhere if where == "nowhere" else on_sqlite if where.startswith("sqlite") else on_postgres
    clock = Clock(int(many))
    with place(where) as write, redis.Redis.from_url(redis_url) as client:
        fill(redis_url, int(many))
        while not clock.over.is_set():
            found: Any = client.xreadgroup(GROUP, "floor", {STREAM: ">"}, count=int(batch))
            entries = found[0][1]
            write(entries)
            client.xack(STREAM, GROUP, *[entry_id for entry_id, _ in entries])
            clock.many(len(entries))
    return clock.rate


if __name__ == "__main__":
    tell(measured(*sys.argv[1:]))
