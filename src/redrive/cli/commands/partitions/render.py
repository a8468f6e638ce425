"""Parts of what is shown of partitions: how one stands, its attempts, why it is not running."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ....core.text import format_duration, pluralise
from ....ops.partitions.history import Explained, Facts, History, Marker, Run
from ...apply.dead_letters import counted
from ...render.details import indented
from ...render.moments import both, utc
from ...render.output import heading, pairs
from ...render.suggestions import spelled, then

__all__ = ["counted", "explained", "quoted", "rejected", "standing", "told"]
LABELS = {"success": "accepted", "refresh_failed": "newer run rejected", "terminal": "gave up"}
"""How states are shown, where that is not their name in JSON."""
UNKNOWN = "limits of "
"""How an explanation begins that says nothing of what hinders it."""
CHECKS = 6
"""Checks of one verdict that are shown where all are well."""


def standing(facts: Facts, /, *, short: bool = False) -> str:
    """The state in a word or two. short: for a table."""
    words = LABELS.get(facts.shade, facts.shade)
    if not short and facts.shade == "refresh_failed":
        words = f"accepted, {words}"
    return f"{words}, running" if facts.running else f"{words}, paused" if facts.paused is not None else words


def rejected(reason: str | None, message: str | None, /) -> str:
    """Why, in a line: what it is called, and what was said, which may begin with that."""
    said = (message or "").strip().partition("\n")[0]
    return said if reason and said.startswith(reason) else ": ".join(part for part in (reason, said) if part)


def told(found: History, /) -> RenderableType:
    """A partition, and every attempt at it."""
    facts, now = found.facts, found.now
    first = pairs()
    first.add_row("status", standing(facts))
    first.add_row("current run", facts.current_run_id or "none")
    first.add_row("attempts", f"{facts.attempt_count} validated, {facts.dispatch_count} started")
    if facts.next_at is not None:
        first.add_row("next", f"{both(facts.next_at, now)}, lane {facts.lane}: {facts.strategy}")
    for marker in found.markers:
        first.add_row(marker.kind, _marked(marker, now))
    lines: list[RenderableType] = [heading(str(facts.partition)), indented(first)]
    for run in found.runs:
        lines += ["", _title(run, facts.current_run_id, now), indented(_run(run, now))]
    if not found.runs:
        lines += ["", Text("No attempts.", style="dim")]
    return Group(*lines)


def _marked(marker: Marker, now: datetime) -> str:
    what = ""
    if marker.kind == "grant" and marker.cause == "unpause" and not marker.attempts:
        what = "unpaused, exempt from max_age, "
    elif marker.kind == "grant":
        many = "the policy's number of attempts" if marker.amount is None else pluralise(marker.amount, "attempt")
        what = f"{many} from {marker.attempts} on, "
    cause = "" if marker.cause == "manual" or marker.kind == "grant" else f"{marker.cause}, "
    return f"{what}{cause}by {marker.actor}, {both(marker.at, now)}: {marker.because}"


def _title(run: Run, current: str | None, now: datetime) -> Text:
    style = {"accepted": "green", "rejected": "red", "leased": "cyan"}.get(run.state, "yellow")
    line = Text(f"{run.attempt_no}  ").append("running" if run.state == "leased" else run.state, style=style)
    if run.run_id == current:
        line.append(", current run", style="bold")
    return line.append(f"  {run.kind}  {both(run.leased_at, now)}")


def _run(run: Run, now: datetime) -> RenderableType:
    made = pairs()
    made.add_row("run", run.run_id if run.raw_run_id == run.run_id else f"{run.run_id}, validated the data of {run.raw_run_id}")
    took = "" if run.ended_at is None else f", took {format_duration(round((run.ended_at - run.leased_at).total_seconds(), 1))}"
    swept = "" if run.sweep_id is None else f", sweep {run.sweep_id}"
    made.add_row("by", f"{run.worker or '–'}, lane {run.lane}{swept}{took}")
    verdict = run.verdict
    if verdict is None:
        if run.note:
            made.add_row("ended", Text(_noted(run.note), style="yellow"))
        return made
    if run.note:
        made.add_row("note", Text(_noted(run.note), style="yellow"))
    rows = "" if verdict.record_count is None else f", {pluralise(verdict.record_count, 'row')}"
    made.add_row(
        "verdict", f"{verdict.decision} by {f'{verdict.validator} {verdict.version}'.strip()}, {utc(run.verdict_at)} UTC{rows}"
    )
    if verdict.decision == "rejected":
        made.add_row("because", Text(rejected(verdict.reason, verdict.message), style="red"))
    bad = [check for check in verdict.checks if not check.get("ok")]
    good = [check for check in verdict.checks if check.get("ok")]
    for check in (*bad, *good[: max(0, CHECKS - len(bad))]):
        made.add_row("check", _check(check))
    return made


def _noted(note: str) -> str:
    """A stored note in the words of the docs."""
    return note.replace("not charged: ", "does not count as an attempt: ", 1)


def _check(check: Mapping[str, Any]) -> Text:
    ok = bool(check.get("ok"))
    line = Text("✓ " if ok else "✗ ", style="green" if ok else "red").append(str(check.get("name")), style="")
    if check.get("value") is not None:
        line.append(f": {_plain(check['value'])}")
    if check.get("limit") is not None:
        line.append(f", limit {_plain(check['limit'])}", style="dim")
    return line


def _plain(value: Any) -> str:
    return ", ".join(f"{name} {part}" for name, part in value.items()) if isinstance(value, dict) else str(value)


def explained(found: Explained, /) -> RenderableType:
    """How one stands, and why it is not running."""
    facts, now = found.explanation.facts, found.explanation.now
    made: Table = pairs()
    if facts is None:
        made.add_row("status", "pending: never queued")
    elif facts.current_run_id is not None:
        rows = "" if facts.record_count is None else f", {pluralise(facts.record_count, 'row')}"
        at = "" if found.in_force is None else f", accepted {utc(found.in_force.verdict_at)} UTC"
        status = Text(f"accepted: run {facts.current_run_id}{at}{rows}")
        hurt = found.explanation.damaged
        if found.lost is not None:
            status.append(f"  ← not readable: {found.lost}", style="bold red")
        elif hurt is not None:
            status.append(f"  ← damaged, found {utc(hurt.verdict_at)} UTC: not readable", style="bold red")
        elif found.unchecked is not None:
            status.append(spelled(f"  ← raw data not checked: {found.unchecked}"), style="yellow")
        else:
            status.append("  ← consumers read this", style="bold")
        made.add_row("status", status)
    else:
        made.add_row("status", standing(facts))
    last = found.last
    if facts is not None and facts.last_verdict == "rejected" and last is not None:
        what = "newer run" if facts.current_run_id is not None else "last"
        said = rejected(facts.reason, facts.error)
        made.add_row(what, Text(f"attempt {facts.attempt_count} rejected {utc(facts.verdict_at)} UTC: {said}", style="red"))
    running = facts is not None and facts.running
    due = facts is not None and not running and facts.next_at is not None and facts.next_at <= now
    hindered = any(not line.startswith(UNKNOWN) for line in found.explanation.why)
    turn = "due" if hindered else "due; starts when a worker is free"
    why = [*([turn] if due else []), *found.explanation.why]
    for place, line in enumerate(why):
        made.add_row("" if place else "running" if running else "not running", f"{line[0].upper()}{line[1:]}")
    if found.explanation.position is not None:
        made.add_row(
            "queue", f"{found.explanation.position:,} of {found.explanation.queued:,} in lane {facts.lane if facts else '–'}"
        )
    if found.assumed and facts is not None:
        said = f"{facts.attempt_count} validated, {facts.dispatch_count} started"
        made.add_row("attempts", f"{said}; pass --ledger module:app for the policy's limit")
    elif found.explanation.budget:
        made.add_row("budget", found.explanation.budget)
    for place, hint in enumerate(_hints(found)):
        made.add_row("" if place else "next", Text(then(hint), style="dim"))
    return Group(heading(str(found.partition)), indented(made))


def _hints(found: Explained) -> list[str]:
    facts, key = found.explanation.facts, quoted(str(found.partition))
    if facts is None:
        day = found.partition.logical_date
        if day > found.explanation.now.date():
            return []  # nothing can be done about it yet
        if found.explanation.sweep is not None:
            return [f"redrive backfill status {found.explanation.sweep}"]
        dataset = quoted(f"{found.partition.source}/{found.partition.query_name}")
        return [
            f"redrive backfill plan {dataset} --since {day} --until {day} --customer-id {quoted(found.partition.customer_id)}"
        ]
    hints = [f"redrive state history {key}"]
    if facts.running:
        return hints
    if facts.terminal is not None:
        return [*hints, f'redrive state clear-terminal {key} --because "..."']
    if facts.paused is not None:
        return [*hints, f'redrive state unpause {key} --because "..."']
    verb = "reprocess" if facts.shade == "success" else "retry"
    return [*hints, f'redrive state {verb} {key} --because "..."']


def quoted(text: str, /) -> str:
    """For a shell; a name in any script stays readable."""
    plain = all(char.isalnum() or char in "/-_.%:@" for char in text)
    return text if plain else "'" + text.replace("'", "'\\''") + "'"
