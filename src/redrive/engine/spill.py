"""Spill: what a call that gave up can leave behind, if it was told to: the work itself, for somebody with more time.

The engine knows nothing of a ledger: `spill=` is a function, called once. Around the loops, not in them: calls that have none
cost nothing, and calls that succeed next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from ..journal.bus import emit, is_wanted
from ..journal.redaction import redact_text
from ..journal.sinks.logging import INFO
from .nesting import Left, add_note, left_by, mark, outcome
from .settings import Settings
from .spilled import Spill, Spilled, SpillOver


def spilling(settings: Settings, fn: Callable[..., Any], inner: Callable[..., Any]) -> Callable[..., Any]:
    """`inner`, the loop around `fn`, so that what it gives up on is spilled."""
    spill = settings.spill
    assert spill is not None
    if isinstance(spill, SpillOver):
        spill = spill.over(fn)
    return (_coroutine if iscoroutinefunction(inner) else _plain)(settings, inner, spill)


def _plain(settings: Settings, inner: Callable[..., Any], spill: Spill) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return inner(*args, **kwargs)
        except Exception as error:
            left = left_by(settings, error)
            if left is not None:
                _told(error, left, partial(spill, _spilled(error, left, args, kwargs)))
            raise

    return wrapper


def _coroutine(settings: Settings, inner: Callable[..., Any], spill: Spill) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return await inner(*args, **kwargs)
        except Exception as error:
            left = left_by(settings, error)  # at once: another task may get the same error
            if left is not None:
                from asyncio import to_thread  # noqa: PLC0415  # 45 ms that plain programs must not pay

                # Writing something down takes its time, which is not the event loop's.
                await to_thread(_told, error, left, partial(spill, _spilled(error, left, args, kwargs)))
            raise

    return wrapper


def _spilled(error: Exception, left: Left, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Spilled:
    ended, trail = left.ended, left.trail
    history: list[tuple[str, float]] = []
    while trail is not None:
        trail, wait, kind = trail
        history.insert(0, (kind.__name__, wait))
    return Spilled(
        operation=ended.layer,
        args=args,
        kwargs=kwargs,
        key=left.key,
        error=type(error).__name__,
        message=_said(error),
        attempts=ended.attempts,
        elapsed=ended.elapsed,
        reason=ended.reason,
        retry_at=ended.retry_at,
        history=tuple(history),
    )


def _told(error: Exception, left: Left, spill: Callable[[], str | int | None]) -> None:
    """Spill; whatever comes of it is written on the caller's own error, which is what the caller gets."""
    try:
        job = spill()
    except Exception as problem:
        add_note(error, f"redrive: could not be enqueued as a job: {type(problem).__name__}: {_said(problem)}")
        emit("spill_failed", {"operation": left.ended.layer, "error": _said(problem), "error_class": type(problem).__name__})
        return
    if job is not None:
        ended = left.ended
        if ended.reason == "nested":  # whose retries were spent stays said
            ended = outcome(error) or ended
        mark(error, replace(ended, job_id=str(job)), f"redrive: enqueued as job {job}")
    if is_wanted(INFO):
        key = None if left.key is None else str(left.key)
        emit("spilled", {"operation": left.ended.layer, "reason": left.ended.reason, "job_id": job, "idempotency_key": key})


def _said(error: Exception) -> str:
    try:
        return redact_text(str(error))
    except Exception:  # an error that cannot even say itself is still an error
        return "(its message cannot be read)"
