"""Parts of the output of jobs, dead letters and events: fields, payloads, attempts, totals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...ops.dead_letters.model import Try
from ...ops.defaults import MOST_COUNTED
from .moments import both
from .output import heading, pairs

STATES = {"dlq": "dead", "retry_wait": "retry scheduled"}


def state_name(state: str, /) -> str:
    """A job's state as it is shown, here and in the console. JSON has its own name."""
    return STATES.get(state, state)


def showing(count: int, total: int | None = None, /) -> str:
    """`Showing 50 of 60,000; use --limit for more.`, or nothing is left out."""
    if total is None:
        return f"Showing the first {count:,}; use --limit for more."
    return f"Showing all {count:,}." if total <= count else f"Showing {count:,} of {counted_up_to(total)}; use --limit for more."


def cut_note(count: int, total: int | None, /) -> str | None:
    """`showing`, if a list is cut. total: None: it is shorter than its limit."""
    return None if total is None or total <= count else showing(count, total)


def with_note(table: RenderableType, *notes: str | None) -> RenderableType:
    """A list, and notes under it."""
    texts = [note for note in notes if note]
    return Group(table, "", *(Text(note, style="dim") for note in texts)) if texts else table


def counted_up_to(total: int, /) -> str:
    """A number that was counted up to a limit."""
    return f"{MOST_COUNTED:,}+" if total > MOST_COUNTED else f"{total:,}"


def indented(body: RenderableType, /) -> Padding:
    """Under its heading."""
    return Padding(body, (0, 0, 0, 2), expand=False)


def fields(title: str, given: Mapping[str, Any], /) -> list[RenderableType]:
    """Names and what they stand for, under a title; nothing at all where there are none."""
    if not given:
        return []
    made = pairs()
    for name, value in given.items():
        made.add_row(name, str(value))
    return ["", heading(title), indented(made)]


def payload(title: str, value: Any, size: int, /) -> list[RenderableType]:
    """What is in a payload or a result: JSON or text; None where it is neither."""
    if value is None:
        text = Text("(neither JSON nor text)" if size else "(empty)", style="dim")
    else:
        text = Text(value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False))
    return ["", heading(title), indented(text)]


def tries(made_: Sequence[Try], now: datetime, /) -> Table:
    """Failed and lost attempts: number, outcome, time, worker and error."""
    made = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for one in made_:
        by = f" by {one.worker}" if one.worker else ""
        made.add_row(str(one.number), one.outcome, Text(f"{both(one.ended_at, now)}{by}"))
        said = ": ".join(part for part in (one.reason, one.error) if part)
        if said:
            made.add_row("", "", Text(said, style="red"))
    return made
