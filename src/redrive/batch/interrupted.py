"""A later pass that raises: its error carries the report of the earlier passes."""

from __future__ import annotations

from dataclasses import replace

from ..core.context import scope_around
from ..engine.nesting import GIVE_UPS, Outcome, add_note, mark, origin, outcome, set_attribute
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
