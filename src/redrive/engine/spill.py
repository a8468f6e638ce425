"""Spill: enqueue a call that gave up as a job.

The engine knows no ledger: `spill=` is a function that is called once. The wrapper stands around
the loop, so calls without `spill=` pay nothing, and successful calls almost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from ..core.fault import Reason
from ..core.key import KeyLike
from ..core.text import UNREADABLE_MESSAGE
from ..journal.bus import emit, is_wanted
from ..journal.redaction import redact_text
from ..journal.sinks.logging import INFO
from .nesting import SpillRecord, add_note, detach_spill, mark, outcome

if TYPE_CHECKING:
    from .nesting import RetryLayer


@dataclass(frozen=True, slots=True)
class Spilled:
    """A call that gave up, as a function passed as `spill=` gets it. It belongs to that function.

    Attributes:
        operation: Name of the call.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        key: Key of `retry(key=...)`, if there is one.
        error: Class of the last error.
        message: Text of the last error, without secrets.
        attempts: Number of attempts.
        elapsed: Seconds.
        reason: Why it gave up, as in `Outcome`.
        retry_at: When a retry makes sense, if that is known.
        history: The first attempts: class of the error, and seconds waited after it.
    """

    operation: str | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: KeyLike | None
    error: str
    message: str
    attempts: int
    elapsed: float
    reason: Reason
    retry_at: datetime | None
    history: tuple[tuple[str, float], ...]


Spill: TypeAlias = Callable[[Spilled], "str | int | None"]
"""Enqueues the call, and returns the id of the job."""
ENDED = {"done": "is done", "dlq": "is a dead letter", "discarded": "was discarded"}
"""States of a job that no worker runs, in words."""


class JobEnded(Exception):  # reaches users as a note and in a log record only
    """The job key of a call belongs to a job that has ended, so the call was not enqueued."""


def check_not_ended(job: Any, state: Callable[[], str]) -> None:
    """Raise JobEnded if a submission returned a job that will not do this work.

    It has ended, or is running and was asked to stop.

    Args:
        job: The job, with `id`, `kind`, `key` and `created`.
        state: Returns its state. Only called for a job that existed before.
    """
    if getattr(job, "is_stopping", False):
        raise JobEnded(
            f"{job.kind} job {job.id} with the job key {job.key!r} is running and was asked to "
            "stop; submit the work again when that job has ended"
        )
    if job.created or (shown := state()) not in ENDED:
        return
    raise JobEnded(
        f"{job.kind} job {job.id} with the job key {job.key!r} {ENDED[shown]}, and a job key is "
        "used once; add a part to the key that is different for new work"
    )


@runtime_checkable
class SpillOver(Protocol):
    """A spill that is told the function when it is decorated, to check its parameters."""

    def over(self, fn: Callable[..., Any], /) -> Spill:
        """Return the spill for calls of this function.

        Raises:
            TypeError: Its calls cannot be stored.
            ValueError: Its calls cannot be stored.
        """


def with_spill(
    layer: RetryLayer, spill: Spill, fn: Callable[..., Any], run_loop: Callable[..., Any]
) -> Callable[..., Any]:
    """Return `run_loop`, the loop around `fn`, so that calls that give up are spilled."""
    if isinstance(spill, SpillOver):
        spill = spill.over(fn)
    wrap = _wrap_async if iscoroutinefunction(run_loop) else _wrap_sync
    return wrap(layer, run_loop, spill)


def _wrap_sync(layer: RetryLayer, run_loop: Callable[..., Any], spill: Spill) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return run_loop(*args, **kwargs)
        except Exception as error:
            record = detach_spill(layer, error)
            if record is not None:
                _enqueue(error, record, partial(spill, _spilled_call(error, record, args, kwargs)))
            raise

    return wrapper


def _wrap_async(
    layer: RetryLayer, run_loop: Callable[..., Any], spill: Spill
) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return await run_loop(*args, **kwargs)
        except Exception as error:
            record = detach_spill(layer, error)  # at once: another task may get the same error
            if record is not None:
                from asyncio import to_thread  # noqa: PLC0415  # 45 ms that sync programs must not pay

                # In a thread, because writing to the ledger would block the event loop.
                call = _spilled_call(error, record, args, kwargs)
                await to_thread(_enqueue, error, record, partial(spill, call))
            raise

    return wrapper


def _spilled_call(
    error: Exception, record: SpillRecord, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Spilled:
    ended, history = record.ended, record.history
    attempts: list[tuple[str, float]] = []
    while history is not None:
        history, wait, kind = history
        attempts.insert(0, (kind.__name__, wait))
    return Spilled(
        operation=ended.layer,
        args=args,
        kwargs=kwargs,
        key=record.key,
        error=type(error).__name__,
        message=_redacted_message(error),
        attempts=ended.attempts,
        elapsed=ended.elapsed,
        reason=ended.reason,
        retry_at=ended.retry_at,
        history=tuple(attempts),
    )


def _enqueue(error: Exception, record: SpillRecord, spill: Callable[[], str | int | None]) -> None:
    """Call the spill, and note the result on the caller's error, which is raised in any case."""
    ended = record.ended
    try:
        job_id = spill()
    except Exception as problem:
        kind, message = type(problem).__name__, _redacted_message(problem)
        add_note(error, f"redrive: could not be enqueued as a job: {kind}: {message}")
        fields = {"operation": ended.layer, "error": message, "error_class": kind}
        emit("spill_failed", fields)
        return
    if job_id is not None:
        if ended.reason == "nested":  # keep the outcome of the layer that used up its retries
            ended = outcome(error) or ended
        mark(error, replace(ended, job_id=str(job_id)), f"redrive: enqueued as job {job_id}")
    if is_wanted(INFO):
        emit(
            "spilled",
            {
                "operation": record.ended.layer,
                "reason": record.ended.reason,
                "job_id": job_id,
                "idempotency_key": None if record.key is None else str(record.key),
            },
        )


def _redacted_message(error: Exception) -> str:
    try:
        return redact_text(str(error))
    except Exception:  # an error whose `__str__` raises is still an error
        return UNREADABLE_MESSAGE
