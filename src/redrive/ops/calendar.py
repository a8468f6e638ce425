"""Calendar: how the days of every dataset stand, from the rollups: as quick at ten million partitions as at ten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING

from ..partitions.partition import Day, day
from ..partitions.record import Shade
from .selection import EASTMOST

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

SPAN = timedelta(days=55)
"""Days before the last that are shown where nobody says since when: eight weeks with it."""
LONGEST = 3700
"""Days of one calendar."""
WORST: tuple[Shade, ...] = ("terminal", "failed", "refresh_failed", "pending", "success")
"""What a day of many customers is shown as: the first of these that any has."""


@dataclass(frozen=True, slots=True)
class Row:
    """The days of one dataset. Days of which nothing is known are not in it."""

    source: str
    query: str
    days: Mapping[date, Mapping[Shade, int]]

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


def calendar(
    ledger: Ledger, since: Day | None, until: Day | None, /, *, source: str | None = None, query: str | None = None
) -> Calendar:
    """The calendar of these days; without them of the last eight weeks."""
    from ..partitions.register import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    last = (ledger.now() + EASTMOST).date() if until is None else day("until", until)
    first = last - SPAN if since is None else day("since", since)
    if last < first:
        raise ValueError(f"the range is reversed: it begins {first} and ends {last}")
    if (last - first).days >= LONGEST:
        raise ValueError(f"{first} to {last} is more than ten years: look at them in parts")
    found: dict[tuple[str, str], dict[date, Mapping[Shade, int]]] = {}
    for cell in Register(ledger).calendar(first, last, source=source, query_name=query):
        found.setdefault((cell.source, cell.query_name), {})[cell.logical_date] = cell.shades
    return Calendar(first, last, tuple(Row(*key, days) for key, days in sorted(found.items())))
