"""Nesting: an error on which an inner layer spent its retries is final for the layers around it.

The layer that gives up marks the exception, from the bottom up: free while all goes well. A mark counts only for attempts
that were under way when it was made, so that one exception object raised again by an unrelated call starts afresh.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..core.context import Scope
from ..core.decision import SPENT, Reason
from ..core.key import KeyLike
from ..core.lock import LOCK

if TYPE_CHECKING:
    from .settings import Settings

MARK, LEFT = "__redrive__", "__redrive_left__"
NOTES = 50
"""How many notes an exception has at most before its oldest one of ours goes."""
MOST = 256
"""How many errors are looked at, causes and members of groups: also the guard against a chain that bites its tail."""
Place: TypeAlias = "tuple[int | None, Scope | None, int]"
"""The task, the scopes around, and the thread."""
Trail: TypeAlias = "tuple[Trail | None, float, type[Exception]]"
"""Earlier attempts, the latest first: (the ones before, the wait, the kind of error)."""


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

    def __reduce__(self) -> str:
        return "GIVEUPS"  # the one of the process


GIVEUPS = Serial()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call that gave up ended. Immutable. It survives pickling with its exception.

    Attributes:
        attempts: Number of attempts.
        elapsed: Seconds from the start of the first attempt. Without a time limit, seconds from the
            end of the first attempt, because no clock is read before.
        reason: `attempts`, `timeout`, `retry_after`, `budget`, `not_retryable`, `not_idempotent`,
            `nested`, `breaker_open` or `stopped`.
        retry_at: When a retry makes sense, if that is known.
        layer: Name of the operation that gave up.
        job_id: Id of the job that continues the work, if `spill=` enqueued one.
    """

    attempts: int
    elapsed: float
    reason: Reason
    retry_at: datetime | None = None
    layer: str | None = None
    serial: int = field(default=0, repr=False, compare=False)
    made: Place | None = field(default=None, repr=False, compare=False)
    job_id: str | None = None

    @property
    def spent(self) -> bool:
        """True if the retries are used up. Outer retry layers then do not retry the error."""
        return self.reason in SPENT

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.attempts, self.elapsed, self.reason, self.retry_at, self.layer, self.job_id)


def _arrived(
    attempts: int, elapsed: float, reason: Reason, retry_at: datetime | None, layer: str | None, job_id: str | None = None
) -> Outcome:
    # From another process, which counts by itself: here, the mark is news.
    return Outcome(attempts, elapsed, reason, retry_at, layer, GIVEUPS.next(), job_id=job_id)


def outcome(error: BaseException, /) -> Outcome | None:
    """Return what Redrive did before this exception reached you.

    Args:
        error: The exception.

    Returns:
        The outcome, or None if Redrive had no part in it.
    """
    found = _dict_of(error).get(MARK)
    return found if isinstance(found, Outcome) else None


def mark(error: BaseException, ended: Outcome, note: str | None) -> None:
    """Write the outcome on the exception, past any `__setattr__` of its own."""
    _dict_of(error)[MARK] = ended
    if note is not None:
        add_note(error, note)


def add_note(error: BaseException, note: str) -> None:
    """A line below the exception in its traceback; like `error.add_note`, but past any `__setattr__`."""
    with LOCK:  # one error may be raised in several threads
        notes = _dict_of(error).setdefault("__notes__", [])
        if isinstance(notes, list):
            if len(notes) >= NOTES:  # one object that a program raises again and again must not grow
                notes.remove(next((old for old in notes if str(old).startswith("redrive: ")), notes[0]))
            notes.append(note)


class Left(NamedTuple):
    """What a layer that spills leaves on its error, for the frame just around it."""

    settings: Settings
    thread: int
    ended: Outcome
    trail: Trail | None
    key: KeyLike | None


def leave(error: BaseException, settings: Settings, ended: Outcome, trail: Trail | None, key: KeyLike | None) -> None:
    """Leave it there; a list, since one error may be raised to several calls at once."""
    if ended.reason in SPENT or ended.reason == "nested":
        with LOCK:  # another thread may be taking the list away
            _dict_of(error).setdefault(LEFT, []).append(Left(settings, get_ident(), ended, trail, key))


def left_by(settings: Settings, error: BaseException) -> Left | None:
    """What this layer left on the error just now; taken off it. None where it gave up on nothing."""
    own = _dict_of(error)
    with LOCK:
        there: list[Left] = own.get(LEFT, [])
        for at, left in enumerate(there):
            if left.settings is settings and left.thread == get_ident():
                del there[at]  # by its place: equal values may be another call's
                if not there:
                    own.pop(LEFT, None)
                return left
    return None


def spent_inside(error: BaseException, seen: int, layer: Settings) -> Outcome | None:
    """The outcome of a layer inside this one that used up its retries on this error, since `seen`.

    Also on one of its causes, or on one of a group: trying all of them again would try that one again.
    """
    errors = [error]
    for _ in range(MOST):
        if not errors:
            return None
        one = errors.pop()
        found = _dict_of(one).get(MARK)
        if isinstance(found, Outcome) and found.serial > seen and found.reason in SPENT and not _elsewhere(found, layer):
            return found
        if one.__cause__ is not None:
            errors.append(one.__cause__)
        if isinstance(one, BaseExceptionGroup):
            errors.extend(one.exceptions)
    return None


def left_inside(error: BaseException) -> bool:
    """Whether a layer inside this call has left the work behind already; the mark may also be that of a call beside it."""
    found = outcome(error)
    if found is None or found.job_id is None:
        return False
    return found.made is None or (found.made[0] == _task() and found.made[2] == get_ident())


def place(around: Scope | None) -> Place:
    """Where a layer is that has these scopes around it."""
    return _task(), around, get_ident()


def _elsewhere(found: Outcome, layer: Settings) -> bool:
    """Whether a mark was made by an unrelated call, to which the same object was raised: a lost connection's waiters, say.

    Only tasks can be told apart. They take the scopes around with them, so that one inside this layer knows it; a thread
    may be a worker of this very attempt, and a layer without a time limit does not show itself.
    """
    if found.made is None or found.made[0] is None or found.made[0] == _task() or not layer.shows:
        return False
    around = found.made[1]
    while around is not None:
        if around[2] is layer:
            return False
        around = around[4]
    return True


def _task() -> int | None:
    """Which task this is; None in plain code. A task has its number for itself as long as it lives."""
    tasks = sys.modules.get("asyncio.tasks")
    if tasks is None:
        return None  # nobody has asyncio, so there are no tasks
    try:
        task = tasks.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
    return None if task is None else id(task)


_dict_of: Callable[[BaseException], dict[str, Any]] = BaseException.__dict__["__dict__"].__get__
"""An exception's own attributes, past any `__getattribute__` and any property called `__dict__`."""
