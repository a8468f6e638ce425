"""Heat: the days of datasets as cells: one letter for what is worst in it, and a number for how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from ..ops.calendar import WORST, Calendar, Row

LETTERS = {"success": "s", "pending": "p", "refresh_failed": "r", "failed": "f", "terminal": "t"}
"""Classes of the style sheet, short since there may be thousands."""
WORDS = {
    "success": "accepted", "pending": "pending", "refresh_failed": "accepted, refresh failed", "failed": "failed",
    "terminal": "terminal",
}  # fmt: skip
LANES = {"fresh": "lf", "retry": "lr", "backfill": "lb"}
"""What is queued or running, as a mark under the day: the first of these that there is."""
PICKED = "k"
SOME, MANY = 0.02, 0.25
"""Parts of a day's partitions, from which on what is wrong is some, or much, of it."""


@dataclass(frozen=True, slots=True)
class Square:
    """One day of one dataset, as it is drawn."""

    css: str
    """The letter, and 1, 2 or 3 for how much of the day it is."""
    said: str
    """In words; empty where all is well, or there is nothing."""


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
    """Days that somebody has picked, to plan something for them. Immutable."""

    source: str | None
    query: str | None
    """None: of every dataset that is shown."""
    first: date
    last: date
    counts: Mapping[str, int]
    """By their shades."""

    @property
    def said(self) -> str:
        """What is picked, in a few words."""
        many = (self.last - self.first).days + 1
        of = f"{self.source or 'every source'}/{self.query or '*'}" if self.source or self.query else "all that is shown"
        return f"{many} {'day' if many == 1 else 'days'} of {of}"

    @property
    def stands(self) -> str:
        """How they stand, in words."""
        return ", ".join(f"{many:,} {WORDS[name]}" for name, many in self.counts.items() if many) or "nothing is known of them"

    def has(self, row: Row, /) -> bool:
        """Whether this dataset is meant."""
        return self.source in (None, row.source) and self.query in (None, row.query)


NOTHING = Square("", "")


def picked(calendar: Calendar, source: str | None, query: str | None, first: date, last: date, /) -> Pick:
    """Those days, with how they stand."""
    pick = Pick(source, query, first, last, {})
    counts: dict[str, int] = {}
    for row in calendar.rows:
        for on, shades in row.days.items() if pick.has(row) else ():
            if first <= on <= last:
                for name, many in shades.items():
                    counts[name] = counts.get(name, 0) + many
    return Pick(source, query, first, last, {name: counts[name] for name in LETTERS if name in counts})


def square(shades: Mapping[Any, int] | None, lanes: Mapping[Any, int] | None = None, /) -> Square:
    """One day. None: nothing is known of it."""
    return NOTHING if not shades else _square(tuple(shades.items()), tuple(lanes.items()) if lanes else ())


@lru_cache(2000)  # many days are alike
def _square(shades: tuple[tuple[str, int], ...], lanes: tuple[tuple[str, int], ...]) -> Square:
    there = {name: many for name, many in shades if many}
    name = next((each for each in WORST if each in there), None)
    if name is None:
        return NOTHING
    at_work = dict(lanes)
    mark = next((f" {css}" for lane, css in LANES.items() if lane in at_work), "")
    if name == "success" and not mark:
        return Square("s", "")
    part = there[name] / sum(there.values())
    level = "" if name == "success" else " n1" if part < SOME else " n2" if part < MANY else " n3"
    said = ", ".join(f"{many:,} {WORDS[shade]}" for shade, many in there.items())
    queued = ", ".join(f"{many:,} in lane {lane}" for lane, many in at_work.items())
    return Square(f"{LETTERS[name]}{level}{mark}", f"{said}; {queued}" if queued else said)


def days(calendar: Calendar, /) -> list[date]:
    """All days, the last one at the end."""
    return [calendar.since + timedelta(days=each) for each in range((calendar.until - calendar.since).days + 1)]


def lines(calendar: Calendar, pick: Pick | None = None, /) -> list[Line]:
    """All datasets, those with something wrong first."""
    every = days(calendar)
    made = [Line(row.source, row.query, row.counts, _squares(row, every, pick)) for row in calendar.rows]
    return sorted(made, key=lambda line: (-_wrong(line.counts), line.source, line.query))


def _squares(row: Row, every: list[date], pick: Pick | None) -> tuple[Square, ...]:
    drawn = [square(row.days.get(each), row.lanes.get(each)) for each in every]
    if pick is None or not pick.has(row):
        return tuple(drawn)
    return tuple(
        Square(f"{one.css} {PICKED}".strip(), one.said) if pick.first <= on <= pick.last else one
        for on, one in zip(every, drawn, strict=True)
    )


def _wrong(counts: Mapping[Any, int]) -> int:
    return 1 if any(counts.get(name) for name in ("failed", "terminal", "refresh_failed")) else 0
