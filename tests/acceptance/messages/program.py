"""A consumer process: reads a stream, and notes in a diary what its handlers do.

main([url, redis_url, stream, diary, name, option …]): `until=idle` (ends when nothing is left anywhere), `idle=0.5`.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
from sqlalchemy import Connection, text

from redrive import App, Event, RetryPolicy
from redrive.messages import RedisStream
from redrive.worker.worker import Worker, run_until_signal
from tests.acceptance.crash.diary import Diary

AT_ONCE = RetryPolicy(max_attempts=3, backoff_base=0.05, backoff_max=0.05, jitter=0)
GROUP = "shop"


def made(url: str, source: RedisStream, diary: Diary, name: str) -> App:
    """The app, with its handlers."""
    app = App(url, sources=[source])

    @app.on("paid", name="book", retry=AT_ONCE)
    def book(event: Event[dict[str, Any]]) -> None:
        if event.payload.get("poison"):
            diary.note("killed", event.id)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(event.payload.get("takes", 0))
        diary.note("effect", "book", event.id, name)

    @app.on("paid", name="score", retry=AT_ONCE, in_transaction=True)
    def score(tx: Connection, event: Event[dict[str, Any]]) -> None:
        tx.execute(text("INSERT INTO effect VALUES ('score', :key)"), {"key": event.id})

    return app


def ended(app: App, client: redis.Redis, stream: str, worker: Worker) -> None:
    """Stop the worker when nothing is left to do, in the stream or in the ledger."""
    while True:
        time.sleep(0.05)
        try:
            groups: Any = client.xinfo_groups(stream)
        except redis.RedisError:
            continue
        read = [one for one in groups if one["name"] == GROUP.encode() and not one["pending"] and not one.get("lag")]
        if read and not any(tally.ready or tally.leased for tally in app.ledger.counts().values()):
            worker.stop()
            return


faulthandler.register(signal.SIGUSR1)


def main(arguments: Sequence[str]) -> int:
    """Read and handle, until a signal comes."""
    url, redis_url, stream, path, name, *rest = arguments
    options = {word.partition("=")[0]: word.partition("=")[2] for word in rest}
    diary = Diary(Path(path))
    source = RedisStream(redis_url, stream, group=GROUP, idle=float(options.get("idle", 0.5)), batch=10)
    with made(url, source, diary, name) as app:
        worker = app.worker(threads=4, name=name)
        if "until" in options:
            client = redis.Redis.from_url(redis_url)
            threading.Thread(target=ended, args=(app, client, stream, worker), daemon=True).start()
        run_until_signal(worker)
    diary.note("ended", name)
    return 0
