"""Calendar: how the days of every dataset stand, from the rollups: as quick at ten million partitions as at ten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING

from ...partitions.key import Day, day
from ...partitions.model import Lane, Shade
from ..customers import customer_counts
from ..target.target import ledger_of
from .selection import EASTMOST

if TYPE_CHECKING:
    from ..target.target import Operated

SPAN = timedelta(days=55)
"""Days before the last that are shown where nobody says since when: eight weeks with it."""
LONGEST = 3700
"""Days of one calendar."""
LANED = 50
"""Datasets up to which each day also says what is queued or running."""
WORST: tuple[Shade, ...] = ("terminal", "failed", "refresh_failed", "pending", "success")
"""What a day of many customers is shown as: the first of these that any has."""


@dataclass(frozen=True, slots=True)
class Row:
    """The days of one dataset. Days of which nothing is known are not in it."""

    source: str
    query: str
    days: Mapping[date, Mapping[Shade, int]]
    lanes: Mapping[date, Mapping[Lane, int]] = field(default_factory=dict)
    """What is queued or running, by lane; where there is much, of the first of it."""
    customers: int | None = None
    """Number of customers that the app knows now. None: the app is not known, or cannot say."""
    never_requested: Mapping[date, int] = field(default_factory=dict)
    """On days with at least one partition: how many customers have none. A lower bound if there are
    former customers."""

    @property
    def counts(self) -> dict[Shade, int]:
        """All its days together."""
        made: dict[Shade, int] = {}
        for shades in self.days.values():
            for shade, many in shades.items():
                made[shade] = made.get(shade, 0) + many
        return made


@dataclass(frozen=True, slots=True)
class Calendar:
    """Datasets by days. Immutable."""

    since: date
    until: date
    rows: tuple[Row, ...]
    shades: tuple[Shade, ...] = field(default=WORST)


def worst(shades: Mapping[Shade, int], /) -> Shade | None:
    """The worst that any partition is; None: there is none."""
    return next((shade for shade in WORST if shades.get(shade)), None)


def never_requested(
    days: Mapping[date, Mapping[Shade, int]],
    customers: int | None,
    /,
) -> dict[date, int]:
    """Return how many customers have no partition, on days where others have one. Pure.

    Empty if the number of customers is not known.
    """
    if customers is None:
        return {}
    missing = {on: customers - sum(shades.values()) for on, shades in days.items()}
    return {on: count for on, count in missing.items() if count > 0}


def calendar(
    app: Operated, since: Day | None, until: Day | None, /, *, source: str | None = None, query: str | None = None
) -> Calendar:
    """The calendar of these days; without them of the last eight weeks. Raw data is not checked."""
    from ...partitions.queries import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    ledger = ledger_of(app)
    last = (ledger.now() + EASTMOST).date() if until is None else day("until", until)
    first = max(last, date.min + SPAN) - SPAN if since is None else day("since", since)
    if last < first:
        raise ValueError(f"the range is reversed; it begins {first} and ends {last}")
    if (last - first).days >= LONGEST:
        raise ValueError(f"{first} to {last} is more than ten years; choose a shorter range")
    found: dict[tuple[str, str], dict[date, Mapping[Shade, int]]] = {}
    register = Register(ledger)
    for cell in register.calendar(first, last, source=source, query_name=query):
        found.setdefault((cell.source, cell.query_name), {})[cell.logical_date] = cell.shades
    lanes: dict[tuple[str, str], dict[date, Mapping[Lane, int]]] = {}
    if len(found) <= LANED:
        for (of, name, on), counted in register.under_way(sorted(found), first, last).items():
            lanes.setdefault((of, name), {})[on] = counted
    known = customer_counts(app) if found else {}
    rows = (
        Row(*key, days, lanes.get(key, {}), known.get(key), never_requested(days, known.get(key)))
        for key, days in sorted(found.items())
    )
    return Calendar(first, last, tuple(rows))
