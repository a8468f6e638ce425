"""The progress of a backfill, or of another bulk operation on partitions."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from ....core.text import format_duration, pluralise
from ....ops import Sweep
from ....ops.operator import Operator
from ....ops.partitions.backfill import BackfillReport
from ....ops.partitions.selection import describe_skips
from ....ops.render import both
from ...render import detail_view, top_counts
from ...render.follow import Follower
from ...render.progress import stacked_bar
from ...suggestions import expand_commands
from .render import pause_text

BAR_COLUMNS = 40
LANE_LISTS = {
    "fresh": "`redrive state inspect --lane fresh`",
    "retry": "`redrive state inspect --lane retry`",
    "backfill": "`redrive state inspect --lane backfill`",
}
"""Commands that list the queued partitions of a lane."""


def progress_follower(ops: Operator, sweep_id: int, /) -> Follower[BackfillReport]:
    """Return how the progress of a sweep over partitions is read and printed."""
    return Follower[BackfillReport](
        read=lambda: ops.backfills.progress(sweep_id),
        is_running=lambda report: report.sweep.state == "running",
        draw=lambda report, _width: _report(report),
        line=_line,
    )


def sweep_title(sweep: Sweep, /) -> str:
    """Return the name of a sweep over partitions, such as `Backfill 7`."""
    return f"{sweep.act.capitalize()} {sweep.id}"


def _line(report: BackfillReport) -> str:
    sweep, progress = report.sweep, report.progress
    ended = f"{progress.ok:,} accepted, {progress.failed:,} not accepted"
    open_ = f"{progress.active:,} running, {progress.queued:,} queued, {sweep.left:,} not started"
    return f"{sweep.state}; {ended}, {open_}"


def _report(report: BackfillReport) -> Group:
    sweep, progress, now = report.sweep, report.progress, report.now
    rate = "" if sweep.rate is None else f", at most {sweep.rate:g}/s"
    halt_on = None
    if progress.halt_on is not None:
        halt_on = f"more than {progress.halt_on:.0%} rejected"
    return detail_view(
        sweep_title(sweep),
        {
            "state": sweep.state + (f": {sweep.reason}" if sweep.reason else ""),
            "scope": [report.said, _bar(report), _counts(report)],
            "time left": _time_left(report),
            "paused": [
                Text(f"source {source.source}, {pause_text(source, now)}", style="yellow")
                for source in report.paused
            ],
            "skipped": describe_skips(progress.skips) or None,
            "last errors": _last_errors(report),
            "share": f"{progress.share:.0%} while other work is queued{rate}",
            "canary": f"the first {sweep.canary:,}" if sweep.canary else None,
            "halt on": halt_on,
            "by": sweep.actor,
            "because": sweep.because,
            "started": both(sweep.created_at, now),
            "ended": both(sweep.ended_at, now) if sweep.ended_at else None,
        },
    )


def _last_errors(report: BackfillReport) -> str | None:
    """Return the errors of failing partitions. Most of them may wait for a retry."""
    if not report.reasons:
        return None
    retried = sum(report.reasons.values()) - report.progress.failed
    note = f"; {retried:,} of these wait for a retry" if retried > 0 else ""
    return f"{top_counts(report.reasons)}{note}"


def _bar(report: BackfillReport) -> Text:
    return stacked_bar(
        BAR_COLUMNS,
        report.sweep.total,
        ("━", "green", report.progress.ok),
        ("━", "red", report.progress.failed),
        ("━", "yellow", report.sweep.skipped),
    )


def _counts(report: BackfillReport) -> str:
    progress = report.progress
    failed = f"not accepted {progress.failed:,}"
    if progress.failed:
        failed += f" ({progress.failed / (progress.ok + progress.failed):.2%})"
    parts = [f"{progress.done:.1%} done", f"accepted {progress.ok:,}", failed]
    parts += [f"running {progress.active:,}", f"queued {progress.queued:,}"]
    return " · ".join([*parts, f"not started {report.sweep.left:,}"])


def _time_left(report: BackfillReport) -> str | None:
    progress = report.progress
    if report.left is not None:
        return f"about {format_duration(report.left.total_seconds())}"
    only_retries = progress.queued and not progress.untouched and not progress.active
    if report.sweep.state != "running" or not only_retries:
        return None
    # The lane lists failed ones and those that wait for the end of an outage, which are pending.
    hint = f"; see {LANE_LISTS[progress.lane]}" if report.reasons else ""
    partitions = pluralise(progress.queued, "partition waits", "partitions wait")
    return expand_commands(f"unknown: {partitions} for a retry{hint}")
