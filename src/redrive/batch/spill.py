"""Spill: enqueues a call that could not send all items as a durable job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, Self

from ..core.context import job_around, scope_around
from ..journal.bus import emit, is_wanted
from ..journal.redaction import redact_text
from ..journal.sinks.logging import INFO
from .report import Report


class SpillCommand(Protocol):
    """A durable command (`@app.command`), submitted with the arguments of the call."""

    def using(self, *, due: datetime) -> Self:
        """Return the command with a due time."""

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        """Submit the command and return the job."""


def spill(
    operation: str,
    command: SpillCommand,
    report: Report,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    /,
) -> Report:
    """Enqueue the call if items are pending.

    Returns:
        The report with the id of the job. If the submission fails, the report is unchanged and the
            failure is logged.
    """
    due = _due(report)
    if due is None:
        return report
    try:
        job = command.using(due=due).submit(*args, **kwargs)
    except Exception as error:
        return _log_failure(operation, report, error)
    return _with_job(operation, report, job)


async def spill_async(
    operation: str,
    command: SpillCommand,
    report: Report,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    /,
) -> Report:
    """Do the same as `spill` in async code."""
    due = _due(report)
    if due is None:
        return report
    from asyncio import to_thread  # noqa: PLC0415  # the caller has loaded it

    try:
        due_command: Any = command.using(due=due)
        asubmit = getattr(due_command, "asubmit", None)
        if asubmit is None:
            job = await to_thread(due_command.submit, *args, **kwargs)
        else:
            job = await asubmit(*args, **kwargs)
    except Exception as error:
        return _log_failure(operation, report, error)
    return _with_job(operation, report, job)


def _due(report: Report) -> datetime | None:
    """Return when to send again. None: nothing is pending, or a job is running.

    Inside a job, the command itself is running. The worker decides whether it is retried.
    """
    return None if job_around(scope_around()) is not None else report.next_retry_at


def _with_job(operation: str, report: Report, job: Any) -> Report:
    job_id = str(getattr(job, "id", job))
    if is_wanted(INFO):
        fields = {"reason": "partial", "job_id": job_id, "retry_at": report.next_retry_at}
        emit("spilled", {"operation": operation, **fields})
    return replace(report, job_id=job_id)


def _log_failure(operation: str, report: Report, error: Exception) -> Report:
    try:
        message = redact_text(str(error))
    except Exception:  # __str__ of the error fails
        message = "(its message cannot be read)"
    fields = {"error": message, "error_class": type(error).__name__}
    emit("spill_failed", {"operation": operation, **fields})
    return report
