"""Calendar: a heat map of days for the width there is. Signs tell the states apart where there are no colours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Literal, NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.text import Text

from ....ops.partitions.calendar import Calendar, Row, worst

By: TypeAlias = Literal["day", "week", "month"]
ONE_DAY = timedelta(days=1)
LABEL = 24
"""The name of a dataset is cut after so many columns, where there is no room for more."""
BANDS = 4
"""So many bands of days are shown; what is longer is shown by weeks, then by months."""


class Sign(NamedTuple):
    """How a state looks."""

    sign: str
    plain: str
    """Where the terminal knows only ASCII."""
    style: str
    says: str


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
OF_REQUESTED = "A cell shows the worst requested partition. %: accepted of requested."
OF_KNOWN = "A cell shows the worst partition. %: accepted of all known customers of its days."


class Band(NamedTuple):
    """Columns that stand beside each other, each a day or more; None: a gap."""

    columns: Sequence[tuple[date, date] | None]
    over: str
    """Two lines above them: months or years, and days."""
    under: str = ""


def heat_map(calendar: Calendar, width: int, /, *, by: By | None = None) -> RenderableType:
    """Datasets below each other, days from left to right; a cell is the worst that any customer's partition is."""
    names = [f"{row.source}/{row.query}" for row in calendar.rows]
    label = min(max(map(cell_len, names), default=0), LABEL)
    room = max(8, width - label - 2 - 7)
    show = _sign()
    lines: list[RenderableType] = []
    for band in bands(calendar.since, calendar.until, room, by):
        lines += [Text(" " * (label + 2) + line, style="dim") for line in (band.over, band.under) if line.strip()]
        for name, row in zip(names, calendar.rows, strict=True):
            line = Text(set_cell_size(name, label) if cell_len(name) <= label else set_cell_size(name, label - 1) + "…")
            line.append("  ")
            for column in band.columns:
                line.append_text(Text(" ") if column is None else show(_worst(row, *column)))
            lines.append(line.append_text(_share(row, band)))
        lines.append("")
    is_known = any(row.customers is not None for row in calendar.rows)
    signs = [pair for pair in SIGNS.items() if is_known or pair[0] != MISSING]
    legend = Text("  ").join(show(state).append(f" {sign.says}", style="dim") for state, sign in signs)
    return Group(*lines, legend, Text(OF_KNOWN if is_known else OF_REQUESTED, style="dim"))


def bands(since: date, until: date, room: int, by: By | None = None, /) -> Iterator[Band]:
    """The columns, as many as there is room for beside each other, then the next."""
    weeks = _weeks(since, until)
    if by == "month" or (by is None and len(weeks) > BANDS * room):
        for months in _even(_months(since, until), room):
            yield Band(months, _over(months, _year))
    elif by == "week" or (by is None and len(weeks) > BANDS * ((room + 1) // 8)):
        for some in _even(weeks, room):
            yield Band(some, _over(some, _year), _over(some, _name))
    else:
        for some in _even(weeks, max(1, (room + 1) // 8)):
            columns: list[tuple[date, date] | None] = []
            for week in some:
                columns += [None, *_days(*week)] if columns else _days(*week)
            yield Band(columns, _over(columns, _month), _mondays(columns))


def _even(columns: list[tuple[date, date]], room: int) -> Iterator[list[tuple[date, date]]]:
    """In parts that are about as wide as each other."""
    each = -(-len(columns) // -(-len(columns) // room))
    for at in range(0, len(columns), each):
        yield columns[at : at + each]


def _month(first: date, told: bool) -> list[str]:
    """What it may be called, the best first. told: a year stands before it."""
    return [f"{first:%b}"] if told and first.month > 1 else [f"{first:%b %Y}", f"{first:%b}"]


def _name(first: date, _told: bool) -> list[str]:
    return [f"{first:%b}"]


def _year(first: date, _told: bool) -> list[str]:
    return [str(first.year)]


def _over(columns: Sequence[tuple[date, date] | None], names: Callable[[date, bool], list[str]]) -> str:
    """Names over the columns where they begin, each as long as there is room up to the next."""
    starts: list[tuple[int, date]] = []
    for at, column in enumerate(columns):
        if column is not None and (not starts or names(column[1], True)[-1] != names(starts[-1][1], True)[-1]):
            starts.append((at, column[1]))
    line, told = "", False
    for place, (at, first) in enumerate(starts):
        room = (starts[place + 1][0] - 1 if place + 1 < len(starts) else max(at + 8, len(columns))) - at
        said = next((name for name in names(first, told) if len(name) <= room), "")
        told = told or str(first.year) in said
        line = line.ljust(at) + said
    return line


def _mondays(columns: Sequence[tuple[date, date] | None]) -> str:
    line = ""
    for at, column in enumerate(columns):
        if column is not None and (at == 0 or columns[at - 1] is None):
            line = line.ljust(at) + str(column[0].day)
    return line


def _days(since: date, until: date) -> list[tuple[date, date]]:
    return [(day, day) for each in range((until - since).days + 1) for day in [since + each * ONE_DAY]]


def _weeks(since: date, until: date) -> list[tuple[date, date]]:
    """From Monday to Sunday, but for the ends."""
    found = []
    while since <= until:
        last = min(until, since + (6 - since.weekday()) * ONE_DAY)
        found.append((since, last))
        since = last + ONE_DAY
    return found


def _months(since: date, until: date) -> list[tuple[date, date]]:
    found = []
    while since <= until:
        following = (since.replace(day=1) + 31 * ONE_DAY).replace(day=1)
        found.append((since, min(until, following - ONE_DAY)))
        since = following
    return found


def _within(row: Row, first: date, last: date) -> Iterator[Mapping[str, int]]:
    for each in range((last - first).days + 1):
        found = row.days.get(first + each * ONE_DAY)
        if found is not None:
            yield {str(shade): many for shade, many in found.items()}


def _worst(row: Row, first: date, last: date) -> str | None:
    together: dict[str, int] = {}
    for shades in _within(row, first, last):
        for shade, many in shades.items():
            together[shade] = together.get(shade, 0) + many
    state = worst(together)  # type: ignore[arg-type]  # they are shades, by name
    return MISSING if state == "success" and _missing(row, first, last) else state


def _missing(row: Row, first: date, last: date) -> int:
    days = (first + each * ONE_DAY for each in range((last - first).days + 1))
    return sum(row.never_requested.get(day, 0) for day in days)


def _share(row: Row, band: Band) -> Text:
    """The accepted part of a band: of requested partitions, and of missing ones where known."""
    good = known = 0
    for column in band.columns:
        if column is not None:
            for shades in _within(row, *column):
                known += sum(shades.values())
                good += shades.get("success", 0) + shades.get("refresh_failed", 0)
            known += _missing(row, *column)
    if not known:
        return Text("      –", style="dim")
    percent = 100 * good / known
    said = "100" if good == known else f"{min(percent, 99.9):.0f}" if percent < 99 else f"{min(percent, 99.9):.1f}"
    return Text(f"{said:>5} %", style="dim")


def _sign() -> Callable[[str | None], Text]:
    try:
        "".join(one.sign for one in SIGNS.values()).encode(sys.stdout.encoding or "ascii")
        plain = False
    except (UnicodeEncodeError, LookupError):
        plain = True
    return lambda state: Text(SIGNS[state].plain if plain else SIGNS[state].sign, style=SIGNS[state].style)
