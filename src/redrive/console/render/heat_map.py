"""Heat map: one cell for each day of a dataset, with a letter for its worst status and a number for how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from ...core.text import pluralise
from ...ops.partitions.calendar import WORST, Calendar, Row
from .icons import word

LETTERS = {"success": "s", "pending": "p", "refresh_failed": "r", "failed": "f", "terminal": "t"}
"""CSS classes by status. Short, because a page has thousands of them."""
WORDS = {name: word(name) for name in LETTERS}
LANES = {"fresh": "lf", "retry": "lr", "backfill": "lb"}
"""CSS classes of the mark under a day that is queued or running. The first matching lane is shown."""
MISSING = "m"
"""CSS class of a day whose partitions are accepted, while other customers have none."""
PICKED = "k"
SOME, MANY = 0.02, 0.25
"""Shares of failed partitions from which a day is drawn darker."""


@dataclass(frozen=True, slots=True)
class Square:
    """One day of one dataset, as it is drawn."""

    css: str
    """The letter, and 1, 2 or 3 for how much of the day it is."""
    said: str
    """The counts in words. Empty if everything was accepted, or nothing was requested."""


@dataclass(frozen=True, slots=True)
class Line:
    """One dataset, as it is drawn."""

    source: str
    query: str
    counts: Mapping[Any, int]
    """By their shades."""
    squares: tuple[Square, ...]


@dataclass(frozen=True, slots=True)
class Pick:
    """Days that an operator has selected for a plan. Immutable."""

    source: str | None
    query: str | None
    """None: every dataset that is shown."""
    first: date
    last: date
    counts: Mapping[str, int]
    """By their shades."""
    missing: int = 0
    """Customers that were never requested, summed over these days. 0 if they are not known."""

    @property
    def said(self) -> str:
        """Describe the selection."""
        days = pluralise((self.last - self.first).days + 1, "day")
        of = f"{self.source or 'every source'}/{self.query or '*'}" if self.source or self.query else "all datasets shown"
        return f"{days} of {of}"

    @property
    def stands(self) -> str:
        """Describe the status of the selected partitions."""
        parts = [f"{many:,} {WORDS[name]}" for name, many in self.counts.items() if many]
        parts += [f"{self.missing:,} never requested"] if self.missing else []
        return ", ".join(parts) or "no partitions"

    def has(self, row: Row, /) -> bool:
        """Whether this dataset is selected."""
        return self.source in (None, row.source) and self.query in (None, row.query)


NOTHING = Square("", "")


def picked(calendar: Calendar, source: str | None, query: str | None, first: date, last: date, /) -> Pick:
    """Return the selection with the counts of its partitions."""
    pick = Pick(source, query, first, last, {})
    counts: dict[str, int] = {}
    missing = 0
    for row in calendar.rows:
        for on, shades in row.days.items() if pick.has(row) else ():
            if first <= on <= last:
                missing += row.never_requested.get(on, 0)
                for name, many in shades.items():
                    counts[name] = counts.get(name, 0) + many
    shown = {name: counts[name] for name in LETTERS if name in counts}
    return Pick(source, query, first, last, shown, missing)


def square(shades: Mapping[Any, int] | None, lanes: Mapping[Any, int] | None = None, missing: int = 0, /) -> Square:
    """Draw one day. None: it has no partitions. missing: customers that have none."""
    return NOTHING if not shades else _square(tuple(shades.items()), tuple(lanes.items()) if lanes else (), missing)


@lru_cache(2000)  # many days are alike
def _square(shades: tuple[tuple[str, int], ...], lanes: tuple[tuple[str, int], ...], missing: int) -> Square:
    there = {name: many for name, many in shades if many}
    name = next((each for each in WORST if each in there), None)
    if name is None:
        return NOTHING
    at_work = dict(lanes)
    mark = next((f" {css}" for lane, css in LANES.items() if lane in at_work), "")
    if name == "success" and not mark and not missing:
        return Square("s", "")
    part = there[name] / sum(there.values())
    level = "" if name == "success" else " n1" if part < SOME else " n2" if part < MANY else " n3"
    said = ", ".join(f"{many:,} {WORDS[shade]}" for shade, many in there.items())
    if missing:
        said = f"{said}, {missing:,} never requested"
    letter = MISSING if name == "success" and missing else LETTERS[name]
    queued = ", ".join(f"{many:,} in lane {lane}" for lane, many in at_work.items())
    return Square(f"{letter}{level}{mark}", f"{said}; {queued}" if queued else said)


def days(calendar: Calendar, /) -> list[date]:
    """Return all days, in order."""
    return [calendar.since + timedelta(days=each) for each in range((calendar.until - calendar.since).days + 1)]


def lines(calendar: Calendar, pick: Pick | None = None, /) -> list[Line]:
    """Return all datasets, those with problems first."""
    every = days(calendar)
    made = [Line(row.source, row.query, row.counts, _squares(row, every, pick)) for row in calendar.rows]
    return sorted(made, key=lambda line: (-_wrong(line.counts), line.source, line.query))


def _squares(row: Row, every: list[date], pick: Pick | None) -> tuple[Square, ...]:
    drawn = [square(row.days.get(each), row.lanes.get(each), row.never_requested.get(each, 0)) for each in every]
    if pick is None or not pick.has(row):
        return tuple(drawn)
    return tuple(
        Square(f"{one.css} {PICKED}".strip(), one.said) if pick.first <= on <= pick.last else one
        for on, one in zip(every, drawn, strict=True)
    )


def _wrong(counts: Mapping[Any, int]) -> int:
    return 1 if any(counts.get(name) for name in ("failed", "terminal", "refresh_failed")) else 0
