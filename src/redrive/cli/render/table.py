"""Fit: a table for the width there is. What matters least is left out, what may be is cut or folded, the rest stays whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

GAP = 2


class Column(NamedTuple):
    """One column, and what it gives up where there is no room."""

    name: str
    number: bool = False
    least: int | None = None
    """It may be as narrow as this; None: only as narrow as what is in it."""
    wants: int = 0
    """Others are left out for it to be as wide as this."""
    most: int | None = None
    """It is not wider than this, unless the whole table fits."""
    cut: bool = False
    """What does not fit is cut off, else folded."""
    leave: int = 0
    """Left out where there is no room, those with the highest number first; 0: never."""


def fitted(columns: Sequence[Column], rows: Sequence[Mapping[str, str | Text]], width: int) -> Table:
    """The table, in at most so many columns of the terminal."""
    unlimited = [column._replace(most=None) for column in columns]
    if natural(unlimited, rows) <= width:
        columns = unlimited
    full = {column.name: _full(column, rows) for column in columns}
    shown = list(columns)
    for wanting in (True, False):
        leaving = [column for column in shown if column.leave and not (wanting and column.wants)]
        for column in sorted(leaving, key=lambda column: -column.leave):
            if _together([_least(one, full, wanting) for one in shown]) > width:
                shown.remove(column)
    widths = {column.name: _least(column, full) for column in shown}
    spare = width - _together(list(widths.values()))
    for column in sorted(shown, key=lambda column: column.cut):  # what can only be folded comes before what can be cut
        more = min(max(spare, 0), full[column.name] - widths[column.name])
        widths[column.name] += more
        spare -= more
    made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    for column in shown:
        made.add_column(
            column.name,
            width=widths[column.name],
            justify="right" if column.number else "left",
            no_wrap=column.cut or column.least is None,
            overflow="ellipsis" if column.cut else "fold",
        )
    for row in rows:
        made.add_row(*(row[column.name] for column in shown))
    return made


def natural(columns: Sequence[Column], rows: Sequence[Mapping[str, str | Text]]) -> int:
    """How wide the table would be with everything in it."""
    return _together([_full(column, rows) for column in columns])


def _full(column: Column, rows: Sequence[Mapping[str, str | Text]]) -> int:
    widest = max([cell_len(column.name), *(_width(row[column.name]) for row in rows)])
    return widest if column.most is None else min(widest, column.most)


def _least(column: Column, full: Mapping[str, int], wanting: bool = False) -> int:
    whole = full[column.name]
    least = max(column.least or 0, column.wants if wanting else 0)
    return whole if column.least is None else max(cell_len(column.name), min(whole, least))


def _together(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _width(cell: str | Text) -> int:
    return cell.cell_len if isinstance(cell, Text) else max(map(cell_len, cell.split("\n")))
