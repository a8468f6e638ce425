"""Left: what a batch could not send is left behind as a durable command, for the moment at which trying again makes sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, Self

from ..core.context import job_around, scope_around
from ..journal.bus import emit, wanted
from ..journal.log import INFO
from ..journal.redaction import redacted_text
from .report import Report


class Leaves(Protocol):
    """A durable command, as `@app.command` makes one: submitted with the arguments of the call that could not send everything."""

    def using(self, *, due: datetime) -> Self:
        """The same, due at that moment."""

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        """Write it down; the job."""


def leave(operation: str, left: Leaves, report: Report, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> Report:
    """The report, with the job that was left behind. Whatever comes of that, the report reaches its caller."""
    due = _due(report)
    if due is None:
        return report
    try:
        job = left.using(due=due).submit(*args, **kwargs)
    except Exception as problem:
        return _failed(operation, report, problem)
    return _told(operation, report, job)


async def aleave(operation: str, left: Leaves, report: Report, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> Report:
    """The same for async code."""
    due = _due(report)
    if due is None:
        return report
    from asyncio import to_thread  # noqa: PLC0415  # the caller has loaded it

    try:
        ready: Any = left.using(due=due)
        asubmit = getattr(ready, "asubmit", None)
        job = await (to_thread(ready.submit, *args, **kwargs) if asubmit is None else asubmit(*args, **kwargs))
    except Exception as problem:
        return _failed(operation, report, problem)
    return _told(operation, report, job)


def _due(report: Report) -> datetime | None:
    """None: nothing is pending; or this is the very command, run by a worker: it comes back by itself, or not at all."""
    return None if job_around(scope_around()) is not None else report.next_retry_at


def _told(operation: str, report: Report, job: Any) -> Report:
    job_id = str(getattr(job, "id", job))
    if wanted(INFO):
        emit("spilled", {"operation": operation, "reason": "partial", "job_id": job_id, "retry_at": report.next_retry_at})
    return replace(report, job_id=job_id)


def _failed(operation: str, report: Report, problem: Exception) -> Report:
    try:
        said = redacted_text(str(problem))
    except Exception:  # an error that cannot even say itself is still an error
        said = "(its message cannot be read)"
    emit("spill_failed", {"operation": operation, "error": said, "error_class": type(problem).__name__})
    return report
