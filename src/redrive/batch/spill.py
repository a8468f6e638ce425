"""Spill: enqueues a call that could not send all items as a durable job.

If a later pass raises, its error carries the report of the earlier passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, Self

from ..core.context import job_around, scope_around
from ..engine.nesting import GIVE_UPS, Outcome, add_note, mark, origin, outcome, set_attribute
from ..engine.spill import check_not_ended
from ..errors import Stop
from ..journal.bus import emit, is_wanted
from ..journal.redaction import redact_text
from ..journal.sinks.logging import INFO
from .report import Report

REPORT_ATTRIBUTE = "redrive_report"
"""The attribute of the error with the report. It is public."""


def attach_report(error: Exception, operation: str, report: Report, elapsed: float, /) -> None:
    """Attach the report of the earlier passes to the error, with a note and an outcome.

    An outcome of `@retry` inside the sender stays, because outer layers read it.
    """
    passes = report.retry_count + 1
    counts = (
        f"{report.count('acknowledged'):,} acknowledged, {report.count('giveup'):,} given up, "
        f"{report.count('pending'):,} pending"
    )
    note = f"redrive: {operation} raised in pass {passes + 1}; before: {counts}"
    ended = outcome(error)
    if ended is None or ended.layer == operation:
        ended = Outcome(
            attempts=passes + 1,
            elapsed=elapsed,
            reason="not_retryable",
            retry_at=report.next_retry_at,
            layer=operation,
            serial=GIVE_UPS.next(),
            origin=origin(scope_around()),
        )
    mark(error, ended, note)
    set_attribute(error, REPORT_ATTRIBUTE, report)


def attach_job(error: Exception, report: Report, /) -> None:
    """Replace the attached report by one with the job that continues, if there is one."""
    ended = outcome(error)
    if report.job_id is not None and ended is not None:
        mark(
            error, replace(ended, job_id=report.job_id), f"redrive: enqueued as job {report.job_id}"
        )
        set_attribute(error, REPORT_ATTRIBUTE, report)


def note_spill_failure(error: Exception, kind: str, message: str, /) -> None:
    """Note on the error that the pending items could not be enqueued as a job."""
    add_note(error, f"redrive: could not be enqueued as a job: {kind}: {message}")


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
    error: Exception | None = None,
) -> Report:
    """Enqueue the call if items are pending.

    `error` is the exception of a later pass, if one raised. It gets a note with the result.

    Returns:
        The report with the id of the job. If the submission fails, the report is unchanged and the
            failure is logged.
    """
    due = _due(report, error)
    if due is None:
        return report
    try:
        job = command.using(due=due).submit(*args, **kwargs)
        require_new_or_pending(job)
    except Exception as problem:
        return _log_failure(operation, report, problem, error)
    return _with_job(operation, report, job, error)


async def spill_async(
    operation: str,
    command: SpillCommand,
    report: Report,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    /,
    error: Exception | None = None,
) -> Report:
    """Do the same as `spill` in async code."""
    due = _due(report, error)
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
        if not getattr(job, "created", True):
            await to_thread(require_new_or_pending, job)
    except Exception as problem:
        return _log_failure(operation, report, problem, error)
    return _with_job(operation, report, job, error)


def require_new_or_pending(job: Any, /) -> None:
    """Raise JobEnded if `submit` returned the ended job of its job key. Reads the ledger then."""
    if not getattr(job, "created", True):  # another queue may return anything
        check_not_ended(job, lambda: job.state)


def _due(report: Report, error: Exception | None) -> datetime | None:
    """Return when to send again. None: nothing is pending, a job is running, or `Stop` was raised.

    Inside a job, the command itself is running. The worker decides whether it is retried.
    """
    is_in_job = job_around(scope_around()) is not None
    return None if is_in_job or isinstance(error, Stop) else report.next_retry_at


def _with_job(operation: str, report: Report, job: Any, error: Exception | None) -> Report:
    job_id = str(getattr(job, "id", job))
    if is_wanted(INFO):
        fields = {"reason": "partial", "job_id": job_id, "retry_at": report.next_retry_at}
        emit("spilled", {"operation": operation, **fields})
    report = replace(report, job_id=job_id)
    if error is not None:
        attach_job(error, report)
    return report


def _log_failure(
    operation: str, report: Report, problem: Exception, error: Exception | None
) -> Report:
    try:
        message = redact_text(str(problem))
    except Exception:  # __str__ of the error fails
        message = "(its message cannot be read)"
    fields = {"error": message, "error_class": type(problem).__name__}
    if error is not None:
        note_spill_failure(error, type(problem).__name__, message)
    emit("spill_failed", {"operation": operation, **fields})
    return report
