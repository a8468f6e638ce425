"""Minimal consumer.

Run it with `python -m benchmarks.messages_suite.floor URL REDIS_URL BATCH MESSAGES`.

URL is the address of a database. One transaction per batch stores a row for each message and a row for its handler, as done.
Then the batch is acknowledged. It has no attempts, leases or retries. If URL is `none`, nothing is stored.
"""

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from benchmarks.isolation import print_result
from benchmarks.messages_suite.clock import GROUP, STREAM, Clock, fill

Write = Callable[[Sequence[Any]], object]


@contextmanager
def sqlite_writer(url: str) -> Iterator[Write]:
    """Store messages in SQLite with WAL and synchronous=FULL."""
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
def postgres_writer(url: str) -> Iterator[Write]:
    """Store messages in Postgres with one statement in autocommit."""
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
def no_writer(_: str) -> Iterator[Write]:
    yield lambda _entries: None


def measure(url: str, redis_url: str, batch: str, messages: str) -> float:
    """Return messages per second."""
    import redis

    writer = no_writer if url == "none" else sqlite_writer if url.startswith("sqlite") else postgres_writer
    clock = Clock(int(messages))
    with writer(url) as write, redis.Redis.from_url(redis_url) as client:
        fill(redis_url, int(messages))
        while not clock.over.is_set():
            streams: Any = client.xreadgroup(GROUP, "floor", {STREAM: ">"}, count=int(batch))
            entries = streams[0][1]
            write(entries)
            client.xack(STREAM, GROUP, *[entry_id for entry_id, _ in entries])
            clock.add(len(entries))
    return clock.rate


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
