"""The heat map: one cell for each day of a dataset, with the worst status of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from ...core.text import pluralise
from ...ops.partitions.calendar import STATUSES_WORST_FIRST, Calendar, CustomerGrid, Row
from .fragments import state_name

STATUS_CSS = {"success": "s", "pending": "p", "refresh_failed": "r", "failed": "f", "terminal": "t"}
"""CSS classes by status. Short, because a page has thousands of them."""
CUSTOMER_CELLS: dict[str | None, str] = {
    None: "<td>",
    **{status: f'<td class="{css}">' for status, css in STATUS_CSS.items()},
}
"""The day of a customer, by status. None: not requested."""
PROBLEMS = ("failed", "terminal", "refresh_failed")
STATUS_NAMES = {status: state_name(status) for status in STATUS_CSS}
LANE_CSS = {"fresh": "lf", "retry": "lr", "backfill": "lb"}
"""CSS classes of the mark under a day that is queued or running. The first match is shown."""
MISSING_CSS = "m"
"""CSS class of a day whose partitions are accepted, while other customers have none."""
SELECTED_CSS = "k"
LEVELS = ((0.02, " n1"), (0.25, " n2"), (float("inf"), " n3"))
"""CSS classes by the share of partitions with the worst status."""


@dataclass(frozen=True, slots=True)
class DayCell:
    """One day of one dataset."""

    css: str
    """CSS classes of the worst status, of its share, and of the lane."""
    title: str
    """The counts in words. Empty if all partitions are accepted, or none was requested."""


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One dataset."""

    source: str
    query: str
    counts: Mapping[Any, int]
    """Partitions by status."""
    cells: tuple[DayCell, ...]

    @property
    def problems(self) -> int:
        """Number of partitions that failed, gave up or have a newer run rejected."""
        return sum(self.counts.get(name, 0) for name in PROBLEMS)


@dataclass(frozen=True, slots=True)
class DayRange:
    """The days that an operator has selected for a plan. Immutable."""

    source: str | None
    query: str | None
    """None: every dataset that is shown."""
    first: date
    last: date
    counts: Mapping[str, int]
    """Partitions by status."""
    missing: int = 0
    """Customers without a partition, summed over the days. 0 if they are unknown."""

    @property
    def title(self) -> str:
        """The selected days and datasets in words."""
        days = pluralise((self.last - self.first).days + 1, "day")
        if not self.source and not self.query:
            return f"{days} of all datasets shown"
        return f"{days} of {self.source or 'every source'}/{self.query or '*'}"

    @property
    def summary(self) -> str:
        """The counts in words."""
        return _describe(self.counts, self.missing) or "no partitions"

    def includes(self, row: Row, /) -> bool:
        """Whether this dataset is selected."""
        return self.source in (None, row.source) and self.query in (None, row.query)


NO_PARTITIONS = DayCell("", "")


def select_days(
    calendar: Calendar, source: str | None, query: str | None, first: date, last: date, /
) -> DayRange:
    """Return the selection with the counts of its partitions."""
    selection = DayRange(source, query, first, last, {})
    counts: Counter[str] = Counter()
    missing = 0
    for row in calendar.rows:
        for day, statuses in row.days.items() if selection.includes(row) else ():
            if first <= day <= last:
                missing += row.never_requested.get(day, 0)
                counts.update(statuses)
    ordered = {status: counts[status] for status in STATUS_CSS if status in counts}
    return replace(selection, counts=ordered, missing=missing)


def day_cell(
    statuses: Mapping[Any, int] | None, lanes: Mapping[Any, int] | None = None, missing: int = 0, /
) -> DayCell:
    """Return the cell of one day.

    Args:
        statuses: Partitions by status. None: the day has no partitions.
        lanes: Queued and running partitions by lane.
        missing: Customers without a partition.
    """
    if not statuses:
        return NO_PARTITIONS
    return _cached_cell(tuple(statuses.items()), tuple((lanes or {}).items()), missing)


@lru_cache(2000)  # many days are equal
def _cached_cell(
    statuses: tuple[tuple[str, int], ...], lanes: tuple[tuple[str, int], ...], missing: int
) -> DayCell:
    counts = {status: count for status, count in statuses if count}
    worst = next((status for status in STATUSES_WORST_FIRST if status in counts), None)
    if worst is None:
        return NO_PARTITIONS
    queued = dict(lanes)
    mark = next((f" {css}" for lane, css in LANE_CSS.items() if lane in queued), "")
    if worst == "success" and not mark and not missing:
        return DayCell(STATUS_CSS[worst], "")
    if worst == "success":
        css = MISSING_CSS if missing else STATUS_CSS[worst]
    else:
        share = counts[worst] / sum(counts.values())
        css = STATUS_CSS[worst] + next(level for limit, level in LEVELS if share < limit)
    in_lanes = ", ".join(f"{count:,} in lane {lane}" for lane, count in queued.items())
    title = "; ".join(filter(None, (_describe(counts, missing), in_lanes)))
    return DayCell(f"{css}{mark}", title)


def _describe(counts: Mapping[str, int], missing: int) -> str:
    parts = [f"{count:,} {STATUS_NAMES[status]}" for status, count in counts.items() if count]
    parts += [f"{missing:,} never requested"] if missing else []
    return ", ".join(parts)


def customer_rows(grid: CustomerGrid, /) -> list[tuple[str, Markup, int]]:
    """Return each customer with the cells of its days, and the number of its problems.

    The cells are drawn here: a page has thousands, and a loop in a template takes longer.
    """
    days = days_of(grid)
    rows = []
    for row in grid.rows:
        cells = Markup("".join(CUSTOMER_CELLS[row.days.get(day)] for day in days))  # noqa: S704  # constants
        rows.append((row.customer, cells, sum(status in PROBLEMS for status in row.days.values())))
    return rows


def days_of(calendar: Calendar | CustomerGrid, /) -> list[date]:
    """Return all days in order."""
    length = (calendar.until - calendar.since).days + 1
    return [calendar.since + timedelta(days=offset) for offset in range(length)]


def dataset_rows(calendar: Calendar, selection: DayRange | None = None, /) -> list[DatasetRow]:
    """Return all datasets, those with problems first."""
    days = days_of(calendar)
    rows = [
        DatasetRow(row.source, row.query, row.counts, _cells(row, days, selection))
        for row in calendar.rows
    ]
    return sorted(rows, key=lambda row: (not row.problems, row.source, row.query))


def draw_cells(row: DatasetRow, days: list[date], /) -> Markup:
    """Return the cells of a dataset as HTML. A loop in a template takes three times as long."""
    cells = []
    for day, cell in zip(days, row.cells, strict=True):
        css = f' class="{cell.css}"' if cell.css else ""
        cells.append(f'<td{css} title="{day}: {cell.title}">' if cell.title else f"<td{css}>")
    return Markup("".join(cells))  # noqa: S704  # numbers and our own words


def _cells(row: Row, days: list[date], selection: DayRange | None) -> tuple[DayCell, ...]:
    cells = [
        day_cell(row.days.get(day), row.lanes.get(day), row.never_requested.get(day, 0))
        for day in days
    ]
    if selection is None or not selection.includes(row):
        return tuple(cells)
    return tuple(
        replace(cell, css=f"{cell.css} {SELECTED_CSS}".strip())
        if selection.first <= day <= selection.last
        else cell
        for day, cell in zip(days, cells, strict=True)
    )
