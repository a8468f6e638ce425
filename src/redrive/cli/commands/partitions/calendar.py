"""Heat maps of datasets and customers by day, for any width. Signs tell states apart."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Literal, NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.text import Text

from ....ops.partitions.calendar import Calendar, CustomerGrid, CustomerRow, Row, worst
from ...render import dim

Unit: TypeAlias = Literal["day", "week", "month"]
Span: TypeAlias = tuple[date, date]
"""First and last day of a column."""
ONE_DAY = timedelta(days=1)
MAX_NAME_COLUMNS = 24
"""Columns after which the name of a dataset is cut."""
MAX_BANDS = 4
"""Longer calendars are printed by weeks, then by months."""
SHARE_COLUMNS = 7


class Sign(NamedTuple):
    """How a state is printed."""

    sign: str
    ascii_sign: str
    style: str
    label: str


SIGNS: Mapping[str | None, Sign] = {
    "success": Sign("■", "#", "green", "accepted"),
    "pending": Sign("○", "o", "cyan", "pending"),
    "refresh_failed": Sign("▲", "^", "yellow", "newer run rejected"),
    "failed": Sign("✗", "x", "red", "failed"),
    "terminal": Sign("!", "!", "bold red", "gave up"),
    "never_requested": Sign("□", "-", "yellow", "some never requested"),
    None: Sign("·", ".", "dim", "none"),
}
MISSING = "never_requested"
REQUESTED_NOTE = "A cell shows the worst requested partition. %: accepted of requested."
PROBLEMS = ("failed", "terminal", "refresh_failed")
PROBLEMS_NOTE = "Number: days that failed, gave up or have a newer run rejected."
KNOWN_NOTE = "A cell shows the worst partition. %: accepted of all known customers of its days."


class Band(NamedTuple):
    """Columns that stand beside each other. None is a gap."""

    columns: Sequence[Span | None]
    top: str
    """The first line above the columns: months or years."""
    bottom: str = ""
    """The second line: days or months."""


def heat_map(calendar: Calendar, width: int, /, *, by: Unit | None = None) -> RenderableType:
    """Return datasets below each other, with days from left to right.

    A cell shows the worst state of the partitions of all customers.
    """
    names = [f"{row.source}/{row.query}" for row in calendar.rows]
    name_width = min(max(map(cell_len, names), default=0), MAX_NAME_COLUMNS)
    room = max(8, width - name_width - 2 - SHARE_COLUMNS)
    sign_of = _sign_printer()
    lines: list[RenderableType] = []
    for band in bands(calendar.since, calendar.until, room, by):
        headers = [header for header in (band.top, band.bottom) if header.strip()]
        lines += [dim(" " * (name_width + 2) + header) for header in headers]
        for name, row in zip(names, calendar.rows, strict=True):
            line = Text(f"{_fit(name, name_width)}  ")
            for span in band.columns:
                line.append_text(Text(" ") if span is None else sign_of(_worst_state(row, *span)))
            lines.append(line.append_text(_accepted_share(row, band)))
        lines.append("")
    has_customers = any(row.customers is not None for row in calendar.rows)
    legend = Text("  ").join(
        sign_of(state).append(f" {sign.label}", style="dim")
        for state, sign in SIGNS.items()
        if has_customers or state != MISSING
    )
    return Group(*lines, legend, dim(KNOWN_NOTE if has_customers else REQUESTED_NOTE))


def _fit(name: str, width: int) -> str:
    if cell_len(name) <= width:
        return set_cell_size(name, width)
    return set_cell_size(name, width - 1) + "…"


# --- Columns


def bands(since: date, until: date, room: int, by: Unit | None = None, /) -> Iterator[Band]:
    """Yield the columns in bands, each with as many columns as there is room for."""
    weeks = _weeks(since, until)
    weeks_in_room = (room + 1) // 8
    if by is None:
        has_many_weeks = len(weeks) > MAX_BANDS * room
        has_many_days = len(weeks) > MAX_BANDS * weeks_in_room
        by = "month" if has_many_weeks else "week" if has_many_days else "day"
    if by == "month":
        for months in _split(_months(since, until), room):
            yield Band(months, _labels(months, _year))
    elif by == "week":
        for part in _split(weeks, room):
            yield Band(part, _labels(part, _year), _labels(part, _month))
    else:
        for part in _split(weeks, max(1, weeks_in_room)):
            columns: list[Span | None] = []
            for week in part:
                columns += [None, *_days(*week)] if columns else _days(*week)
            yield Band(columns, _labels(columns, _month_and_year), _mondays(columns))


def _split(columns: list[Span], room: int) -> Iterator[list[Span]]:
    """Split columns into parts of about the same size."""
    parts = -(-len(columns) // room)
    size = -(-len(columns) // parts)
    for start in range(0, len(columns), size):
        yield columns[start : start + size]


def _month_and_year(first: date, has_year: bool) -> list[str]:
    """Return labels of a month, the best first. has_year: an earlier label has the year."""
    return [f"{first:%b}"] if has_year and first.month > 1 else [f"{first:%b %Y}", f"{first:%b}"]


def _month(first: date, _has_year: bool) -> list[str]:
    return [f"{first:%b}"]


def _year(first: date, _has_year: bool) -> list[str]:
    return [str(first.year)]


def _labels(columns: Sequence[Span | None], names: Callable[[date, bool], list[str]]) -> str:
    """Return names above the columns where they begin, each as long as there is room."""
    starts: list[tuple[int, date]] = []
    for index, column in enumerate(columns):
        if column is None:
            continue
        if not starts or names(column[1], True)[-1] != names(starts[-1][1], True)[-1]:
            starts.append((index, column[1]))
    line, has_year = "", False
    for number, (start, first) in enumerate(starts):
        end = max(start + 8, len(columns))
        if number + 1 < len(starts):
            end = starts[number + 1][0] - 1
        label = next((name for name in names(first, has_year) if len(name) <= end - start), "")
        has_year = has_year or str(first.year) in label
        line = line.ljust(start) + label
    return line


def _mondays(columns: Sequence[Span | None]) -> str:
    line = ""
    for index, column in enumerate(columns):
        is_first = column is not None and (index == 0 or columns[index - 1] is None)
        if column is not None and is_first and (not line or len(line) < index):
            line = line.ljust(index) + str(column[0].day)
    return line


def _dates(first: date, last: date) -> Iterator[date]:
    return (first + number * ONE_DAY for number in range((last - first).days + 1))


def _days(since: date, until: date) -> list[Span]:
    return [(day, day) for day in _dates(since, until)]


def _weeks(since: date, until: date) -> list[Span]:
    """Return the weeks from Monday to Sunday. The first and the last may be shorter."""
    weeks = []
    while since <= until:
        last = min(until, since + (6 - since.weekday()) * ONE_DAY)
        weeks.append((since, last))
        since = last + ONE_DAY
    return weeks


def _months(since: date, until: date) -> list[Span]:
    months = []
    while since <= until:
        following = (since.replace(day=1) + 31 * ONE_DAY).replace(day=1)
        months.append((since, min(until, following - ONE_DAY)))
        since = following
    return months


# --- Cells


def _state_counts(row: Row, first: date, last: date) -> Counter[str]:
    counts: Counter[str] = Counter()
    for day in _dates(first, last):
        counts.update({str(state): count for state, count in row.days.get(day, {}).items()})
    return counts


def _worst_state(row: Row, first: date, last: date) -> str | None:
    state = worst(_state_counts(row, first, last))  # type: ignore[arg-type]  # stored states
    return MISSING if state == "success" and _count_missing(row, first, last) else state


def _count_missing(row: Row, first: date, last: date) -> int:
    return sum(row.never_requested.get(day, 0) for day in _dates(first, last))


def _accepted_share(row: Row, band: Band) -> Text:
    """Return the accepted part of a band: of requested partitions, and of known missing ones."""
    accepted = total = 0
    for span in band.columns:
        if span is not None:
            counts = _state_counts(row, *span)
            total += counts.total() + _count_missing(row, *span)
            accepted += counts["success"] + counts["refresh_failed"]
    if not total:
        return Text("      –", style="dim")
    percent = 100 * accepted / total
    text = f"{min(percent, 99.9):.{0 if percent < 99 else 1}f}"
    return Text(f"{'100' if accepted == total else text:>5} %", style="dim")


def _sign_printer() -> Callable[[str | None], Text]:
    """Return a function for the sign of a state, in ASCII if the output knows nothing else."""
    signs = "".join(sign.sign for sign in SIGNS.values())
    try:
        signs.encode(sys.stdout.encoding or "ascii")
        is_ascii = False
    except (UnicodeEncodeError, LookupError):
        is_ascii = True

    def print_sign(state: str | None) -> Text:
        sign = SIGNS[state]
        return Text(sign.ascii_sign if is_ascii else sign.sign, style=sign.style)

    return print_sign


# --- Customers by day


def customer_map(grid: CustomerGrid, width: int, /) -> RenderableType:
    """Return customers below each other, with days from left to right.

    Behind the days is the number of days with a problem.
    """
    names = [row.customer for row in grid.rows]
    name_width = min(max(map(cell_len, names), default=0), MAX_NAME_COLUMNS)
    room = max(8, width - name_width - 2 - SHARE_COLUMNS)
    sign_of = _sign_printer()
    lines: list[RenderableType] = []
    for band in bands(grid.since, grid.until, room, "day"):
        headers = [header for header in (band.top, band.bottom) if header.strip()]
        lines += [dim(" " * (name_width + 2) + header) for header in headers]
        for row in grid.rows:
            line = Text(f"{_fit(row.customer, name_width)}  ")
            for span in band.columns:
                line.append_text(Text(" ") if span is None else sign_of(row.days.get(span[0])))
            lines.append(line.append_text(_problem_count(row, band)))
        lines.append("")
    legend = Text("  ").join(
        sign_of(state).append(f" {sign.label}", style="dim")
        for state, sign in SIGNS.items()
        if state not in (MISSING, None)
    )
    missing = sign_of(None).append(f" not requested  {PROBLEMS_NOTE}", style="dim")
    return Group(*lines, legend, missing)


def _problem_count(row: CustomerRow, band: Band) -> Text:
    days = [span[0] for span in band.columns if span is not None]
    count = sum(row.days.get(day) in PROBLEMS for day in days)
    text = f"{count or '–':>{SHARE_COLUMNS}}"
    return Text(text, style="red" if count else "dim")
