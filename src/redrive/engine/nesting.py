"""Outcome marks: an error on which an inner layer used up its retries is final for outer layers.

The layer that gives up marks the exception, so successful calls pay nothing. A mark counts only for
attempts that were running when it was made. An exception object that an unrelated call raises again
is therefore retried as usual.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.context import LAYER, OUTER, Scope
from ..core.fault import SPENT, Reason
from ..core.lock import LOCK

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Protocol

    from ..core.context import ScopeLayer
    from ..core.key import KeyLike

    class RetryLayer(ScopeLayer, Protocol):
        """A retry layer, as far as marks need to know it. `RetrySettings` is one."""

        @property
        def publishes_scope(self) -> bool:
            """Whether code inside can see the attempts of this layer."""


OUTCOME_ATTRIBUTE, SPILLS_ATTRIBUTE = "__redrive__", "__redrive_left__"
MAX_NOTES = 50
"""Notes of one exception. Beyond, the oldest of our notes is removed."""
MAX_CHAINED_ERRORS = 256
"""Causes and group members that are searched. It also guards against cyclic `__cause__` chains."""
Origin: TypeAlias = "tuple[int | None, Scope | None, int]"
"""Where a mark was made: the id of the task, the scopes around, and the thread."""
AttemptHistory: TypeAlias = "tuple[AttemptHistory | None, float, type[Exception]]"
"""Failed attempts, the latest first: (earlier attempts, seconds waited, type of the error)."""


class GiveUpCounter:
    """Counts how often layers have given up in this process."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        """Count one more, and return its number."""
        with LOCK:
            self.count += 1
            return self.count

    def __reduce__(self) -> str:
        return "GIVE_UPS"  # pickled by name: each process has its own


GIVE_UPS = GiveUpCounter()


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
    origin: Origin | None = field(default=None, repr=False, compare=False)
    job_id: str | None = None

    @property
    def spent(self) -> bool:
        """True if the retries are used up. Outer retry layers then do not retry the error."""
        return self.reason in SPENT

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.attempts, self.elapsed, self.reason, self.retry_at, self.layer, self.job_id)
        return _arrived, values


def _arrived(
    attempts: int,
    elapsed: float,
    reason: Reason,
    retry_at: datetime | None,
    layer: str | None,
    job_id: str | None = None,
) -> Outcome:
    """Unpickle an outcome. (Pickles of earlier versions refer to this name.)

    It gets a new number, because the other process counts by itself.
    """
    return Outcome(attempts, elapsed, reason, retry_at, layer, GIVE_UPS.next(), job_id=job_id)


def outcome(error: BaseException, /) -> Outcome | None:
    """Return what Redrive did before this exception reached you.

    Args:
        error: The exception.

    Returns:
        The outcome, or None if Redrive had no part in it.
    """
    mark_found = _dict_of(error).get(OUTCOME_ATTRIBUTE)
    return mark_found if isinstance(mark_found, Outcome) else None


def mark(error: BaseException, ended: Outcome, note: str | None) -> None:
    """Write the outcome on the exception, and add a note. Bypasses a custom `__setattr__`."""
    _dict_of(error)[OUTCOME_ATTRIBUTE] = ended
    if note is not None:
        add_note(error, note)


def add_note(error: BaseException, note: str) -> None:
    """Add a line below the exception in its traceback. Bypasses a custom `__setattr__`."""
    with LOCK:  # several threads may raise one error
        notes = _dict_of(error).setdefault("__notes__", [])
        if isinstance(notes, list):
            if len(notes) >= MAX_NOTES:  # a program may raise one object again and again
                ours = (note for note in notes if str(note).startswith("redrive: "))
                notes.remove(next(ours, notes[0]))
            notes.append(note)


def set_attribute(error: BaseException, name: str, value: object) -> None:
    """Set an attribute of the exception. Bypasses a custom `__setattr__`."""
    _dict_of(error)[name] = value


class SpillRecord:
    """What a layer with `spill=` attaches to its error, for the wrapper around its loop."""

    __slots__ = ("ended", "history", "key", "layer", "thread")

    def __init__(
        self,
        layer: RetryLayer,
        ended: Outcome,
        history: AttemptHistory | None,
        key: KeyLike | None,
    ) -> None:
        self.layer = layer
        self.thread = get_ident()
        self.ended = ended
        self.history = history
        self.key = key


def attach_spill(
    error: BaseException,
    layer: RetryLayer,
    ended: Outcome,
    history: AttemptHistory | None,
    key: KeyLike | None,
) -> None:
    """Attach a spill record. The attribute is a list: several calls may share one error."""
    if ended.reason in SPENT or ended.reason == "nested":
        with LOCK:  # another thread may remove the list
            records = _dict_of(error).setdefault(SPILLS_ATTRIBUTE, [])
            records.append(SpillRecord(layer, ended, history, key))


def detach_spill(layer: RetryLayer, error: BaseException) -> SpillRecord | None:
    """Remove and return the record that this layer attached just now, if it gave up."""
    attributes = _dict_of(error)
    with LOCK:
        records: list[SpillRecord] = attributes.get(SPILLS_ATTRIBUTE, [])
        for index, record in enumerate(records):
            if record.layer is layer and record.thread == get_ident():
                del records[index]  # by index: another call may have an equal record
                if not records:
                    attributes.pop(SPILLS_ATTRIBUTE, None)
                return record
    return None


def spent_inside(error: BaseException, giveups_before: int, layer: RetryLayer) -> Outcome | None:
    """Return the outcome of an inner layer that used up its retries on this error.

    Causes and group members count too, because a retry of the whole would retry them.

    Args:
        error: The error that reached `layer`.
        giveups_before: `GIVE_UPS.count` when the attempt started.
        layer: The layer that asks.
    """
    pending = [error]
    for _ in range(MAX_CHAINED_ERRORS):
        if not pending:
            return None
        current = pending.pop()
        ended = outcome(current)
        if (
            ended is not None
            and ended.serial > giveups_before
            and ended.reason in SPENT
            and not _is_from_unrelated_call(ended, layer)
        ):
            return ended
        if current.__cause__ is not None:
            pending.append(current.__cause__)
        if isinstance(current, BaseExceptionGroup):
            pending.extend(current.exceptions)
    return None


def was_spilled_inside(error: BaseException) -> bool:
    """Return whether a layer inside this call has already enqueued the work as a job.

    A mark of a concurrent call that got the same error does not count.
    """
    ended = outcome(error)
    if ended is None or ended.job_id is None:
        return False
    if ended.origin is None:
        return True
    task, _, thread = ended.origin
    return task == _task_id() and thread == get_ident()


def origin(scope: Scope | None) -> Origin:
    """Return where this code runs, inside these scopes."""
    return _task_id(), scope, get_ident()


def _is_from_unrelated_call(ended: Outcome, layer: RetryLayer) -> bool:
    """Return whether an unrelated call made the mark, because it got the same error object.

    All callers that wait for a lost connection may get one object, for example. Only tasks can be
    told apart. They inherit the scopes around, so a task inside `layer` has its scope. A thread may
    be a worker of this attempt, and a layer without a time limit does not publish its scope.
    """
    if ended.origin is None or not layer.publishes_scope:
        return False
    task, scope, _ = ended.origin
    if task is None or task == _task_id():
        return False
    while scope is not None:
        if scope[LAYER] is layer:
            return False
        scope = scope[OUTER]
    return True


def _task_id() -> int | None:
    """Return the id of the running asyncio task. None in sync code."""
    tasks = sys.modules.get("asyncio.tasks")
    if tasks is None:
        return None  # asyncio is not imported, so there are no tasks
    try:
        task = tasks.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
    return None if task is None else id(task)


_dict_of: Callable[[BaseException], dict[str, Any]] = BaseException.__dict__["__dict__"].__get__
"""Returns the attributes of an exception. Bypasses `__getattribute__` and `__dict__` properties."""
