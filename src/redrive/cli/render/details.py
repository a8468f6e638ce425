"""Detail views: labelled fields, sections, payloads, attempts, and notes under a list."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...core.text import pluralise
from ...ops.context import MOST_COUNTED
from ...ops.dead_letters.model import REPLAY_NOTES, Try
from ...ops.render import both
from ..suggestions import complete_command

STATE_NAMES = {"dlq": "dead", "retry_wait": "retry scheduled"}
"""States whose printed name differs from the stored one. JSON has the stored name."""
MAX_COUNTED_NAMES = 4

FieldValue: TypeAlias = RenderableType | Sequence[RenderableType] | None


def state_name(state: str, /) -> str:
    """Return the printed name of a job's state, the same as in the console."""
    return STATE_NAMES.get(state, state)


# --- Parts of a view


def heading(text: str, /) -> Text:
    """Return the title of a part of the output."""
    return Text(text, style="bold")


def indent(body: RenderableType, /) -> Padding:
    """Indent the body under its heading."""
    return Padding(body, (0, 0, 0, 2), expand=False)


def section(title: str, body: RenderableType, /) -> list[RenderableType]:
    """Return a section of a view: a blank line, the heading and the indented body."""
    return ["", heading(title), indent(body)]


def detail_view(title: str, values: Mapping[str, FieldValue], /, *more: RenderableType) -> Group:
    """Return a heading, labelled fields, and more parts under them."""
    return Group(heading(title), indent(fields(values)), *more)


def fields(values: Mapping[str, FieldValue], /, *, repeat_labels: bool = False) -> Table:
    """Return labels with their values beside them.

    None leaves a field out. A list has one line for each item. The label stands before the first
    line, or before each with repeat_labels.
    """
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for label, value in values.items():
        for number, line in enumerate(_lines(value)):
            table.add_row("" if number and not repeat_labels else label, line)
    return table


def _lines(value: FieldValue) -> Sequence[RenderableType]:
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value]
    return value


def bullets(items: Sequence[tuple[RenderableType, RenderableType]], /) -> Table:
    """Return a list of texts with a sign before each."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for sign, text in items:
        table.add_row(sign, text)
    return table


def suggestion(*commands: str) -> Text:
    """Return commands for the next step, one on each line."""
    return Text("\n".join([f"→ {complete_command(command)}" for command in commands]), style="dim")


# --- Parts of jobs, dead letters and events


def named_values(title: str, values: Mapping[str, Any], /) -> list[RenderableType]:
    """Return a section of names and values, such as headers. Nothing if there are none."""
    texts: dict[str, FieldValue] = {name: str(value) for name, value in values.items()}
    return section(title, fields(texts)) if texts else []


def payload_section(payload: Any, size: int, /) -> list[RenderableType]:
    """Return the section of a payload, with its size in the title."""
    return section(f"Payload, {pluralise(size, 'byte')}", payload_text(payload, size))


def payload_text(value: Any, size: int = 1, /) -> Text:
    """Return JSON or text. A value of None is binary, or empty if its size is 0."""
    if value is None:
        return Text("(neither JSON nor text)" if size else "(empty)", style="dim")
    is_text = isinstance(value, str)
    return Text(value if is_text else json.dumps(value, indent=2, ensure_ascii=False))


def attempt_table(attempts: Sequence[Try], now: datetime, /) -> Table:
    """Return failed and lost attempts: number, outcome, time, worker and error."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for attempt in attempts:
        worker = f" by {attempt.worker}" if attempt.worker else ""
        when = Text(f"{both(attempt.ended_at, now)}{worker}")
        number = str(attempt.number) if attempt.counted else "–"
        outcome = attempt.outcome if attempt.counted else f"{attempt.outcome}, not counted"
        table.add_row(number, outcome, when)
        error = ": ".join(part for part in (attempt.reason, attempt.error) if part)
        if error:
            table.add_row("", "", Text(error, style="red"))
    return table


def replay_note(reason: str, /) -> list[RenderableType]:
    """Return what to know before dead letters with this reason are replayed, if anything."""
    note = REPLAY_NOTES.get(reason)
    return [Text(f"{note[:1].upper()}{note[1:]}.", style="yellow")] if note else []


# --- Counts


def showing(count: int, total: int | None = None, /) -> str:
    """Say how much of a list is printed. Without a total, the list is cut at its limit."""
    if total is None:
        return f"Showing the first {count:,}; use --limit for more."
    if total <= count:
        return f"Showing all {count:,}."
    return f"Showing {count:,} of {up_to_limit(total)}; use --limit for more."


def cut_note(count: int, total: int | None, /) -> str | None:
    """Say how much of a list is printed, if it is cut. total: None if it is not cut."""
    return None if total is None or total <= count else showing(count, total)


def up_to_limit(total: int, /) -> str:
    """Return a number that was counted up to a limit."""
    return f"{MOST_COUNTED:,}+" if total > MOST_COUNTED else f"{total:,}"


def top_counts(counts: Mapping[str, int], /) -> str:
    """Return the most frequent names, each with its count."""
    ranked = sorted(counts.items(), key=lambda pair: -pair[1])
    names = [f"{name} ×{count:,}" for name, count in ranked[:MAX_COUNTED_NAMES]]
    return ", ".join(names) + (", …" if len(ranked) > MAX_COUNTED_NAMES else "")


def shorten(items: Sequence[str], limit: int, /) -> list[str]:
    """Return the first items, and how many more there are."""
    more = [f"… {len(items) - limit:,} more"] if len(items) > limit else []
    return [*items[:limit], *more]


def first_line(text: str | None, /) -> str | None:
    """Return the first line of an error. None if there is none."""
    return text.partition("\n")[0] if text else None
