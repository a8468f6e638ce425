"""Calendar: the state of every day of the datasets, read from rollups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

from ...partitions.key import Day, days_between, parse_day
from ...partitions.model import DisplayStatus, LaneName
from ...partitions.queries import PartitionQueries
from ..project.target import Operated, ledger_of
from .datasets import customer_counts
from .selection import EASTMOST

DEFAULT_SPAN = timedelta(days=55)
"""Default range: 56 days including the last."""
MAX_DAYS = 3700
"""Days of one calendar."""
MAX_GRID_DAYS = 100
"""Days of one grid of customers."""
MAX_LANE_DATASETS = 50
"""Datasets up to which the calendar has queued and running partitions."""
STATUSES_WORST_FIRST: tuple[DisplayStatus, ...] = (
    "terminal",
    "failed",
    "refresh_failed",
    "pending",
    "success",
)
"""The state of a day is the first of these that any of its partitions has."""


@dataclass(frozen=True, slots=True)
class Row:
    """The days of one dataset that have partitions."""

    source: str
    query: str
    days: Mapping[date, Mapping[DisplayStatus, int]]
    lanes: Mapping[date, Mapping[LaneName, int]] = field(default_factory=dict)
    """Queued and running partitions by lane, counted up to a bound."""
    customers: int | None = None
    """Number of customers that the app knows now. None: the app is not known, or cannot say."""
    never_requested: Mapping[date, int] = field(default_factory=dict)
    """On days with at least one partition: how many customers have none. A lower bound if there are
    former customers."""

    @property
    def counts(self) -> dict[DisplayStatus, int]:
        """Number of partitions of all days by state."""
        total: dict[DisplayStatus, int] = {}
        for statuses in self.days.values():
            for status, count in statuses.items():
                total[status] = total.get(status, 0) + count
        return total


@dataclass(frozen=True, slots=True)
class Calendar:
    """Datasets by days. Immutable."""

    since: date
    until: date
    rows: tuple[Row, ...]
    shades: tuple[DisplayStatus, ...] = field(default=STATUSES_WORST_FIRST)


def worst(statuses: Mapping[DisplayStatus, int], /) -> DisplayStatus | None:
    """Return the worst state of any partition. None: there is no partition."""
    return next((status for status in STATUSES_WORST_FIRST if statuses.get(status)), None)


def never_requested(
    days: Mapping[date, Mapping[DisplayStatus, int]], customers: int | None, /
) -> dict[date, int]:
    """Return how many customers have no partition, on days where others have one. Pure.

    Empty if the number of customers is not known.
    """
    if customers is None:
        return {}
    missing = {on: customers - sum(statuses.values()) for on, statuses in days.items()}
    return {on: count for on, count in missing.items() if count > 0}


def _read_range(app: Operated, since: Day | None, until: Day | None) -> tuple[date, date]:
    """Return the first and the last day, by default the last eight weeks."""
    today = (ledger_of(app).now() + EASTMOST).date()
    last = today if until is None else parse_day("until", until)
    first = (
        max(last, date.min + DEFAULT_SPAN) - DEFAULT_SPAN
        if since is None
        else parse_day("since", since)
    )
    if last < first:
        raise ValueError(f"the range is reversed; it begins {first} and ends {last}")
    return first, last


def calendar(
    app: Operated,
    since: Day | None,
    until: Day | None,
    /,
    *,
    source: str | None = None,
    query: str | None = None,
) -> Calendar:
    """Return the calendar of these days, by default of the last eight weeks.

    Raw data is not checked.
    """
    ledger = ledger_of(app)
    first, last = _read_range(app, since, until)
    if (last - first).days >= MAX_DAYS:
        raise ValueError(f"{first} to {last} is more than ten years; choose a shorter range")
    queries = PartitionQueries(ledger)
    days: dict[tuple[str, str], dict[date, Mapping[DisplayStatus, int]]] = {}
    for cell in queries.calendar(first, last, source=source, query_name=query):
        days.setdefault((cell.source, cell.query_name), {})[cell.logical_date] = cell.shades
    lanes: dict[tuple[str, str], dict[date, Mapping[LaneName, int]]] = {}
    if len(days) <= MAX_LANE_DATASETS:
        active = queries.active_by_day(sorted(days), first, last)
        for (of_source, of_query, on), counts in active.items():
            lanes.setdefault((of_source, of_query), {})[on] = counts
    customers = customer_counts(app) if days else {}
    rows = [
        Row(
            source=dataset[0],
            query=dataset[1],
            days=statuses_by_day,
            lanes=lanes.get(dataset, {}),
            customers=customers.get(dataset),
            never_requested=never_requested(statuses_by_day, customers.get(dataset)),
        )
        for dataset, statuses_by_day in sorted(days.items())
    ]
    return Calendar(first, last, tuple(rows))


# --- Customers by day


@dataclass(frozen=True, slots=True)
class CustomerRow:
    """The days of one customer that have a partition."""

    customer: str
    days: Mapping[date, DisplayStatus]


@dataclass(frozen=True, slots=True)
class CustomerGrid:
    """Customers of one dataset by days, one page of them. Immutable."""

    source: str
    query: str
    since: date
    until: date
    rows: tuple[CustomerRow, ...]
    """By the name of the customer. Only customers with a partition in this range."""
    next_after: str | None
    """The last customer of this page, if there are more."""


def customer_grid(
    app: Operated,
    dataset: tuple[str, str],
    since: Day | None,
    until: Day | None,
    /,
    *,
    after: str = "",
    limit: int,
) -> CustomerGrid:
    """Return the state of each customer on each day, of one page of customers.

    It reads at most `limit` partitions of each day, however many customers there are.
    """
    first, last = _read_range(app, since, until)
    if (last - first).days >= MAX_GRID_DAYS:
        raise ValueError(
            f"{first} to {last} is more than {MAX_GRID_DAYS} days; choose a shorter range"
        )
    days = list(days_between(first, last))
    queries = PartitionQueries(ledger_of(app))
    cells = queries.customers_by_day(dataset, days, after=after, limit=limit + 1)
    rows = [CustomerRow(customer, statuses) for customer, statuses in cells.items()]
    page = tuple(rows[:limit])
    has_more = len(rows) > limit
    return CustomerGrid(*dataset, first, last, page, page[-1].customer if has_more else None)
