"""Outcome: a drill of an engine in figures. `disturb` runs the drills that differ only in their engine and fault."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from redrive import App, Event
from redrive.messages import Source
from tests.ledgers import sqlite_ledger

PATIENCE = 90.0


class Outcome(NamedTuple):
    """What became of the messages of one drill."""

    sent: int
    """Messages that the engine had confirmed."""
    lost: int
    """Messages of these that no handler got."""
    twice: int
    """Messages that a handler got more than once."""
    left: int
    """Messages that were not acknowledged at the end."""
    seconds: float

    @property
    def is_good(self) -> bool:
        return self.sent > 0 and (self.lost, self.twice, self.left) == (0, 0, 0)


def outcome_of(sent: Sequence[str], handled: Counter[str], left: int, seconds: float) -> Outcome:
    """Count lost and duplicated messages."""
    lost = sum(1 for each in sent if not handled[each])
    return Outcome(len(sent), lost, sum(1 for times in handled.values() if times > 1), left, seconds)


def disturb(
    folder: Path,
    source: Source,
    send: Callable[[list[str]], None],
    fault: Callable[[], None],
    count_left: Callable[[], int],
    *,
    times: int,
    messages: int,
) -> Outcome:
    """Send and handle messages, while a fault happens at even distances.

    send: Sends a message of type `paid` for each id, through all faults. It runs in a thread of its own.
    count_left: Returns the number of messages that are not acknowledged, or a negative number while it is not known.
    """
    handled: Counter[str] = Counter()
    ids = [f"p-{number:05}" for number in range(messages)]
    shares = [messages * (number + 1) // (times + 2) for number in range(times)]
    began = time.monotonic()
    with App(sqlite_ledger(folder), sources=[source]) as app:

        @app.on("paid", name="book")
        def book(event: Event[Any]) -> None:
            handled[event.id] += 1

        sender = threading.Thread(target=send, args=(ids,), daemon=True)
        with app.worker(threads=2):
            sender.start()
            for share in shares:
                until(lambda share=share: len(handled) >= share, f"{share} are handled")  # type: ignore[misc]
                fault()
            sender.join(PATIENCE)
            until(lambda: len(handled) == messages, f"{messages} are handled, not {len(handled)}")
            until(lambda: count_left() == 0, "all are acknowledged")
        left = count_left()
        assert app.ledger.counts()["book"].done == messages
    return outcome_of(ids, handled, left, time.monotonic() - began)


def until(met: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.05)
