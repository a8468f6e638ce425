"""Texts and views of partitions: state, history, why one is not running, progress of a backfill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ....core.text import format_duration, join_reason, pluralise
from ....ops import Sweep
from ....ops.operator import Operator
from ....ops.partitions.backfill import BackfillReport
from ....ops.partitions.history import Explained, History, Marker, PartitionRun, PartitionView
from ....ops.partitions.operations import SourceView
from ....ops.partitions.selection import describe_skips
from ....ops.render import ago, both, utc
from ...render import FieldValue, detail_view, dim, fields, first_line, indent, top_counts
from ...render.progress import Follower, stacked_bar
from ...suggestions import complete_command, expand_commands, quote_argument

STATE_NAMES = {"success": "accepted", "refresh_failed": "newer run rejected", "terminal": "gave up"}
"""States whose printed name differs from the stored one. JSON has the stored name."""
MARKER_NAMES = {"terminal": "gave up"}
"""Markers whose printed name differs from the stored one."""
UNKNOWN_PREFIX = "limits of "
"""Begins an explanation that names nothing that keeps the partition from running."""
MAX_CHECKS = 6
"""Passed checks of a verdict are printed up to this number of checks."""
RUN_STYLES = {"accepted": "green", "rejected": "red", "leased": "cyan"}


def partition_state(facts: PartitionView, /, *, is_short: bool = False) -> str:
    """Return the state in a few words. is_short: for a table."""
    words = STATE_NAMES.get(facts.shade, facts.shade)
    if not is_short and facts.shade == "refresh_failed":
        words = f"accepted, {words}"
    if facts.running:
        return f"{words}, running"
    return words if facts.paused is None else f"{words}, paused"


def rejection_text(reason: str | None, message: str | None, /) -> str:
    """Return the reason and the first line of the message, which may begin with the reason."""
    return join_reason(reason, first_line((message or "").strip()))


def pause_text(source: SourceView, now: datetime, /) -> str:
    """Return who paused a source, until when and why."""
    until = "until it is unpaused"
    if source.until is not None:
        until = f"probed {ago(source.until, now)}"
    return f"by {source.actor}, {until} ({source.because})"


# --- History


def history_view(history: History, /) -> Group:
    """Return a partition with all its attempts."""
    facts, now = history.facts, history.now
    values: dict[str, FieldValue] = {
        "status": partition_state(facts),
        "current run": facts.current_run_id or "none",
        "attempts": f"{facts.attempt_count} validated, {facts.dispatch_count} started",
    }
    if facts.next_at is not None:
        values["next"] = f"{both(facts.next_at, now)}, lane {facts.lane}: {facts.strategy}"
    for marker in history.markers:
        # There is at most one of each kind.
        values[MARKER_NAMES.get(marker.kind, marker.kind)] = _marker(marker, now)
    rollbacks = [
        f"to run {entry.what.get('to')} by {entry.actor}, {both(entry.at, now)}: {entry.because}"
        for entry in history.rollbacks
    ]
    if rollbacks:
        values["rolled back"] = rollbacks
    parts: list[RenderableType] = []
    for run in history.runs:
        parts += ["", _run_title(run, facts.current_run_id, now), indent(_run_fields(run))]
    if not history.runs:
        parts += ["", dim("No attempts.")]
    return detail_view(str(facts.partition), values, *parts)


def _marker(marker: Marker, now: datetime) -> str:
    is_grant = marker.kind == "grant"
    detail = "" if marker.cause == "manual" or is_grant else f"{marker.cause}, "
    if is_grant and marker.cause == "unpause" and not marker.attempts:
        detail = "unpaused, exempt from max_age, "
    elif is_grant:
        attempts = "as many new attempts as the policy allows"
        if marker.amount is not None:
            attempts = pluralise(marker.amount, "new attempt")
        before = pluralise(marker.attempts, "earlier attempt")
        detail = f"{attempts}, after {before}, "
    return f"{detail}by {marker.actor}, {both(marker.at, now)}: {marker.because}"


def _run_title(run: PartitionRun, current_run_id: str | None, now: datetime) -> Text:
    state = "running" if run.state == "leased" else run.state
    title = Text(f"{run.attempt_no}  ").append(state, style=RUN_STYLES.get(run.state, "yellow"))
    if run.run_id == current_run_id:
        title.append(", current run", style="bold")
    return title.append(f"  {run.kind}  {both(run.leased_at, now)}")


def _run_fields(run: PartitionRun) -> RenderableType:
    verdict = run.verdict
    raw = "" if run.raw_run_id == run.run_id else f", validated the data of {run.raw_run_id}"
    sweep = "" if run.sweep_id is None else f", sweep {run.sweep_id}"
    took = ""
    if run.ended_at is not None:
        took = f", took {format_duration(round((run.ended_at - run.leased_at).total_seconds(), 1))}"
    values: dict[str, FieldValue] = {
        "run": f"{run.run_id}{raw}",
        "by": f"{run.worker or '–'}, lane {run.lane}{sweep}{took}",
    }
    if run.note:
        note = run.note.replace("not charged: ", "does not count as an attempt: ", 1)
        values["ended" if verdict is None else "note"] = Text(note, style="yellow")
    if verdict is not None:
        rows = "" if verdict.record_count is None else f", {pluralise(verdict.record_count, 'row')}"
        version = f", version {verdict.version}" if verdict.version else ""
        validator = f"by validator {verdict.validator}{version}"
        values["verdict"] = f"{verdict.decision} {utc(run.verdict_at)} UTC {validator}{rows}"
        if verdict.decision == "rejected":
            values["because"] = Text(rejection_text(verdict.reason, verdict.message), style="red")
        values["check"] = _checks(verdict.checks)
    return fields(values, repeat_labels=True)


def _checks(checks: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Return failed checks, then passed ones up to a limit."""
    failed = [check for check in checks if not check.get("ok")]
    passed = [check for check in checks if check.get("ok")]
    return [_check(check) for check in (*failed, *passed[: max(0, MAX_CHECKS - len(failed))])]


def _check(check: Mapping[str, Any]) -> Text:
    sign, style = ("✓ ", "green") if check.get("ok") else ("✗ ", "red")
    line = Text(sign, style=style).append(str(check.get("name")), style="")
    if check.get("value") is not None:
        line.append(f": {_measure(check['value'])}")
    if check.get("limit") is not None:
        line.append(f", limit {_measure(check['limit'])}", style="dim")
    return line


def _measure(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return str(value)


# --- Explanation


def explanation_view(explained: Explained, /) -> Group:
    """Return the state of a partition, why it is not running, and the commands that apply."""
    explanation = explained.explanation
    facts = explanation.facts
    is_running = facts is not None and facts.running
    is_current = facts is not None and facts.current_run_id is not None
    lane = facts.lane if facts else "–"
    queue = None
    if explanation.position is not None:
        queue = f"{explanation.position:,} of {explanation.queued:,} in lane {lane}"
    attempts = explanation.budget or None
    if explained.assumed and facts is not None:
        counts = f"{facts.attempt_count} validated, {facts.dispatch_count} started"
        attempts = f"{counts}; pass --ledger module:app for the policy's limit"
    return detail_view(
        str(explained.partition),
        {
            "status": _explained_state(explained),
            "newer run" if is_current else "last": _last_rejection(explained),
            "running" if is_running else "not running": _reasons(explained),
            "next attempt": _late_attempt(explained),
            "queue": queue,
            "attempts": attempts,
            "next": [dim(complete_command(command)) for command in _next_commands(explained)],
        },
    )


def _explained_state(explained: Explained) -> RenderableType:
    facts, damaged = explained.explanation.facts, explained.explanation.damaged
    if facts is None:
        return "pending: never queued"
    if facts.current_run_id is None:
        return partition_state(facts)
    rows = "" if facts.record_count is None else f", {pluralise(facts.record_count, 'row')}"
    accepted = ""
    if explained.in_force is not None:
        accepted = f", accepted {utc(explained.in_force.verdict_at)} UTC"
    state = Text(f"accepted: run {facts.current_run_id}{accepted}{rows}")
    if explained.lost is not None:
        return state.append(f"  ← not readable: {explained.lost}", style="bold red")
    if damaged is not None:
        problem = f"damaged, found {utc(damaged.verdict_at)} UTC: not readable"
        return state.append(f"  ← {problem}", style="bold red")
    if explained.unchecked is not None:
        problem = expand_commands(f"raw data not checked: {explained.unchecked}")
        return state.append(f"  ← {problem}", style="yellow")
    return state.append("  ← consumers read this", style="bold")


def _last_rejection(explained: Explained) -> Text | None:
    facts = explained.explanation.facts
    if facts is None or facts.last_verdict != "rejected" or explained.last is None:
        return None
    attempt = f"attempt {facts.attempt_count} rejected {utc(facts.verdict_at)} UTC"
    return Text(f"{attempt}: {rejection_text(facts.reason, facts.error)}", style="red")


def _reasons(explained: Explained) -> list[str]:
    reasons = list(explained.explanation.why)
    if _is_due(explained) and not _is_hindered(explained):
        reasons.insert(0, "due; starts when a worker is free")
    return [reason[0].upper() + reason[1:] for reason in reasons]


def _late_attempt(explained: Explained) -> str | None:
    """Return since when a partition is due that cannot start."""
    facts, now = explained.explanation.facts, explained.explanation.now
    if facts is None or not _is_due(explained) or not _is_hindered(explained):
        return None
    return f"due since {both(facts.next_at, now)}"


def _is_due(explained: Explained) -> bool:
    facts = explained.explanation.facts
    next_at = None if facts is None or facts.running else facts.next_at
    return next_at is not None and next_at <= explained.explanation.now


def _is_hindered(explained: Explained) -> bool:
    return any(not reason.startswith(UNKNOWN_PREFIX) for reason in explained.explanation.why)


def _next_commands(explained: Explained) -> list[str]:
    facts, partition = explained.explanation.facts, explained.partition
    if facts is None:
        return _commands_for_unknown(explained)
    key = quote_argument(str(partition))
    history = f"redrive state history {key}"
    source = explained.paused_source
    if source is not None and facts.current_run_id is None and facts.terminal is None:
        # A retry would wait for the source, too. After an outage it resumes by itself.
        name = quote_argument(source.source)
        resume = f'redrive resume source {name} --because "..."'
        return [history] if explained.is_in_outage else [history, resume]
    if facts.running or _is_due(explained):
        return [history]
    if facts.terminal is not None:
        is_unended = facts.last_verdict is None  # No extraction has ended, so no raw data is there.
        verb = "clear-terminal --without-raw" if is_unended else "clear-terminal"
    elif facts.paused is not None:
        verb = "unpause"
    else:
        verb = "reprocess" if facts.shade == "success" else "retry"
    return [history, f'redrive state {verb} {key} --because "..."']


def _commands_for_unknown(explained: Explained) -> list[str]:
    explanation, partition = explained.explanation, explained.partition
    day = partition.logical_date
    if day > explanation.now.date():
        return []  # Nothing can be done before that day.
    if explanation.sweep is not None:
        return [f"redrive backfill status {explanation.sweep}"]
    dataset = quote_argument(f"{partition.source}/{partition.query_name}")
    customer = quote_argument(partition.customer_id)
    return [f"redrive backfill plan {dataset} --since {day} --until {day} --customer-id {customer}"]


# --- Progress of a backfill

BAR_COLUMNS = 40
LANE_COMMANDS = {
    "fresh": "`redrive state inspect --lane fresh`",
    "retry": "`redrive state inspect --lane retry`",
    "backfill": "`redrive state inspect --lane backfill`",
}
"""Commands that list the queued partitions of a lane. A test compares them with the lanes."""


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
    hint = f"; see {LANE_COMMANDS[progress.lane]}" if report.reasons else ""
    partitions = pluralise(progress.queued, "partition waits", "partitions wait")
    return expand_commands(f"unknown: {partitions} for a retry{hint}")
