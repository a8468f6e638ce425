"""Nesting: an error on which an inner layer spent its retries is final for the layers around it.

The layer that gives up marks the exception, from the bottom up: free while all goes well. A mark counts only for attempts
that were under way when it was made, so that one exception object raised again by an unrelated call starts afresh.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..core.decision import SPENT, Reason
from ..core.lock import LOCK

MARK = "__redrive__"
DEPTH = 50
"""How far a chain of causes is followed: also the guard against one that bites its tail."""


class Serial:
    """How many layers have given up in this process so far."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        """One more."""
        with LOCK:
            self.count += 1
            return self.count


GIVEUPS = Serial()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended, and why. Immutable; survives pickling with its exception."""

    attempts: int
    elapsed: float
    """Seconds from the start of the first attempt; from its end where there is no time limit, since no clock is read then."""
    reason: Reason
    retry_at: datetime | None = None
    """When trying again makes sense, where that is known: the wait that did not fit, or the server's own word."""
    layer: str | None = None
    """The operation that gave up."""
    serial: int = field(default=0, repr=False, compare=False)

    @property
    def spent(self) -> bool:
        """Whether retries were used up, so that outer layers let the error pass."""
        return self.reason in SPENT

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.attempts, self.elapsed, self.reason, self.retry_at, self.layer)


def _arrived(attempts: int, elapsed: float, reason: Reason, retry_at: datetime | None, layer: str | None) -> Outcome:
    # From another process, which counts by itself: here, the mark is news.
    return Outcome(attempts, elapsed, reason, retry_at, layer, GIVEUPS.next())


def outcome(error: BaseException, /) -> Outcome | None:
    """What redrive did before this exception reached you; None: nothing."""
    found = error.__dict__.get(MARK)
    return found if isinstance(found, Outcome) else None


def mark(error: BaseException, ended: Outcome, note: str | None) -> None:
    """Write the outcome on the exception, past any `__setattr__` of its own."""
    error.__dict__[MARK] = ended
    if note is not None:
        add_note(error, note)


def add_note(error: BaseException, note: str) -> None:
    """A line below the exception in its traceback; like `error.add_note`, but past any `__setattr__`."""
    notes = error.__dict__.setdefault("__notes__", [])
    if isinstance(notes, list):
        notes.append(note)


def spent_inside(error: BaseException, seen: int) -> Outcome | None:
    """The outcome of an inner layer that used up its retries on this error, or on one of its causes, since `seen`."""
    cause: BaseException | None = error
    for _ in range(DEPTH):
        if cause is None:
            return None
        found = cause.__dict__.get(MARK)
        if found is not None and isinstance(found, Outcome) and found.serial > seen and found.reason in SPENT:
            return found
        cause = cause.__cause__
    return None
