"""Heat: the days of datasets as cells: one letter for what is worst in it, and a number for how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from ..ops.calendar import WORST, Calendar

LETTERS = {"success": "s", "pending": "p", "refresh_failed": "r", "failed": "f", "terminal": "t"}
"""Classes of the style sheet, short since there may be thousands."""
WORDS = {
    "success": "accepted", "pending": "pending", "refresh_failed": "accepted, refresh failed", "failed": "failed",
    "terminal": "terminal",
}  # fmt: skip
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


NOTHING = Square("", "")


def square(shades: Mapping[Any, int] | None, /) -> Square:
    """One day. None: nothing is known of it."""
    return NOTHING if not shades else _square(tuple(shades.items()))


@lru_cache(2000)  # many days are alike
def _square(shades: tuple[tuple[str, int], ...]) -> Square:
    there = {name: many for name, many in shades if many}
    name = next((each for each in WORST if each in there), None)
    if name is None:
        return NOTHING
    if name == "success":
        return Square("s", "")
    part = there[name] / sum(there.values())
    level = 1 if part < SOME else 2 if part < MANY else 3
    said = ", ".join(f"{many:,} {WORDS[shade]}" for shade, many in there.items())
    return Square(f"{LETTERS[name]} n{level}", said)


def days(calendar: Calendar, /) -> list[date]:
    """All days, the last one at the end."""
    return [calendar.since + timedelta(days=each) for each in range((calendar.until - calendar.since).days + 1)]


def lines(calendar: Calendar, /) -> list[Line]:
    """All datasets, those with something wrong first."""
    every = days(calendar)
    made = [Line(row.source, row.query, row.counts, tuple(square(row.days.get(each)) for each in every)) for row in calendar.rows]
    return sorted(made, key=lambda line: (-_wrong(line.counts), line.source, line.query))


def _wrong(counts: Mapping[Any, int]) -> int:
    return 1 if any(counts.get(name) for name in ("failed", "terminal", "refresh_failed")) else 0
