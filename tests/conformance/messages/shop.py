"""An app that reads one source, and records the events of its handler."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from redrive import App, Event
from redrive.ledger import Ledger
from redrive.messages import Source
from redrive.messages.reader import SourceReader


class Shop:
    """An app with a handler of events of type `paid`."""

    def __init__(self, ledger: Ledger, source: Source) -> None:
        self.source = source
        self.app = App(ledger, sources=[source])
        self.seen: list[Event[Any]] = []
        self.app.on("paid", name="book")(self.book)

    def book(self, event: Event[Any]) -> None:
        self.seen.append(event)

    def reading(self) -> SourceReader:
        return SourceReader(self.app.registrations.inbox, self.source)

    def work(self, until: Callable[[], bool], seconds: float = 15.0) -> None:
        work(self.app, until, seconds)


def work(app: App, until: Callable[[], object], seconds: float = 15.0) -> None:
    """Run a worker until a condition is true."""
    with app.worker(threads=2):
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, app.ledger.counts()
            time.sleep(0.01)
