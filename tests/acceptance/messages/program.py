"""A consumer process: reads a stream, and notes in a diary what its handlers do.

main([url, engine, address, stream, diary, name, option …]): `until=idle` (ends when nothing is left anywhere), `idle=0.5`.
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

from sqlalchemy import Connection, text

from redrive import App, Event, RetryPolicy
from redrive.messages import Source
from redrive.worker.worker import Worker, run_until_signal
from tests.acceptance.crash.diary import Diary
from tests.acceptance.messages.stalls import STALLS, Stall, open_source

AT_ONCE = RetryPolicy(max_attempts=3, backoff_base=0.05, backoff_max=0.05, jitter=0)


def build_app(url: str, source: Source, diary: Diary, name: str) -> App:
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


def stop_when_idle(app: App, stall: Stall, worker: Worker) -> None:
    """Stop the worker when nothing is left to do, in the stream or in the ledger."""
    while True:
        time.sleep(0.05)
        if stall.is_empty() and not any(tally.ready or tally.leased for tally in app.ledger.counts().values()):
            worker.stop()
            return


faulthandler.register(signal.SIGUSR1)


def main(arguments: Sequence[str]) -> int:
    """Read and handle messages until a signal arrives."""
    url, engine, address, stream, path, name, *rest = arguments
    options = {word.partition("=")[0]: word.partition("=")[2] for word in rest}
    diary = Diary(Path(path))
    source = open_source(engine, address, stream, float(options.get("idle", 0.5)))
    with build_app(url, source, diary, name) as app:
        worker = app.worker(threads=4, name=name)
        if "until" in options:
            stall = STALLS[engine](address, stream)
            threading.Thread(target=stop_when_idle, args=(app, stall, worker), daemon=True).start()
        run_until_signal(worker)
    diary.note("ended", name)
    return 0
