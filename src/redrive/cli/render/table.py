"""Tables that fit the terminal. A table is declared by its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .output import console, print_json, show

GAP_COLUMNS = 2
DASH = "–"
"""Stands for a missing value."""

R = TypeVar("R")
Cell: TypeAlias = str | Text


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """A column: how a row fills it, and how it behaves in a narrow terminal.

    Args:
        name: The header.
        cell: Returns the text of a row. None is printed as a dash.
        is_number: Align to the right.
        min_width: The column may shrink to this width. None: it never shrinks.
        wanted_width: Other columns are dropped until this one is at least this wide.
        max_width: The column is not wider, unless the whole table fits.
        truncate: Cut the text at the end instead of folding it.
        drop_order: Columns with the highest number are dropped first. 0: never dropped.
    """

    name: str
    cell: Callable[[R], Cell | None]
    is_number: bool = False
    min_width: int | None = None
    wanted_width: int = 0
    max_width: int | None = None
    truncate: bool = False
    drop_order: int = 0


def print_table(
    columns: Sequence[Column[R]],
    rows: Sequence[R],
    *,
    above: str = "",
    below: Sequence[RenderableType | None] = (),
) -> None:
    """Print a table, with a line above it and lines below it."""
    table = responsive_table(columns, rows, console().width)
    top: list[RenderableType] = [Text(above), ""] if above else []
    notes = [dim(note) for note in below if note]
    show(Group(*top, table, *([""] if notes else []), *notes))


def print_rows(
    rows: Sequence[R],
    /,
    as_json: bool,
    columns: Sequence[Column[R]],
    *,
    empty: str,
    below: Sequence[RenderableType | None] = (),
) -> None:
    """Print the rows of a list: as JSON, as a table with notes below it, or that there are none."""
    if as_json:
        print_json(rows)
    elif rows:
        print_table(columns, rows, below=below)
    else:
        show(empty)


def dim(note: RenderableType, /) -> RenderableType:
    """Return a text in the style of notes and hints."""
    return Text(note, style="dim") if isinstance(note, str) else note


def count_or_dash(count: int, style: str = "", /) -> Text:
    """Return a number, or a dash for 0. The style is for a number only."""
    return Text(f"{count:,}", style=style) if count else Text(DASH)


def responsive_table(columns: Sequence[Column[R]], rows: Sequence[R], width: int) -> Table:
    """Return a table of at most this width.

    Columns are dropped by their drop order, then shrunk to their minimal width. The remaining
    columns of the terminal go to folded columns first, then to truncated ones.
    """
    cells = [_cells(columns, row) for row in rows]
    unlimited = [replace(column, max_width=None) for column in columns]
    if _natural_width(unlimited, cells) <= width:
        columns = unlimited
    full = {column.name: _full_width(column, cells) for column in columns}
    shown = list(columns)
    for is_wanted in (True, False):
        droppable = [
            column
            for column in shown
            if column.drop_order and not (is_wanted and column.wanted_width)
        ]
        for column in sorted(droppable, key=lambda column: -column.drop_order):
            if _total([_min_width(other, full, is_wanted) for other in shown]) > width:
                shown.remove(column)
    widths = {column.name: _min_width(column, full) for column in shown}
    spare = width - _total(list(widths.values()))
    for column in sorted(shown, key=lambda column: column.truncate):
        extra = min(max(spare, 0), full[column.name] - widths[column.name])
        widths[column.name] += extra
        spare -= extra
    table = plain_table()
    for column in shown:
        table.add_column(
            column.name,
            width=widths[column.name],
            justify="right" if column.is_number else "left",
            no_wrap=column.truncate or column.min_width is None,
            overflow="ellipsis" if column.truncate else "fold",
        )
    for row in cells:
        table.add_row(*(row[column.name] for column in shown))
    return table


def plain_table(*names: str, numbers: Sequence[str] = ()) -> Table:
    """Return an empty table without a frame. Long texts are folded."""
    table = Table(box=None, padding=(0, GAP_COLUMNS, 0, 0), pad_edge=False, header_style="dim")
    for name in names:
        if name in numbers:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    return table


def natural_width(columns: Sequence[Column[R]], rows: Sequence[R]) -> int:
    """Return the width of the table if nothing is dropped or shrunk."""
    return _natural_width(columns, [_cells(columns, row) for row in rows])


def _cells(columns: Sequence[Column[R]], row: R) -> dict[str, Cell]:
    values = {column.name: column.cell(row) for column in columns}
    return {name: DASH if value is None else value for name, value in values.items()}


def _natural_width(columns: Sequence[Column[R]], cells: Sequence[Mapping[str, Cell]]) -> int:
    return _total([_full_width(column, cells) for column in columns])


def _full_width(column: Column[R], cells: Sequence[Mapping[str, Cell]]) -> int:
    widest = max([cell_len(column.name), *(_cell_width(row[column.name]) for row in cells)])
    return widest if column.max_width is None else min(widest, column.max_width)


def _min_width(column: Column[R], full: Mapping[str, int], is_wanted: bool = False) -> int:
    full_width = full[column.name]
    if column.min_width is None:
        return full_width
    least = max(column.min_width, column.wanted_width if is_wanted else 0)
    return max(cell_len(column.name), min(full_width, least))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP_COLUMNS * (len(widths) - 1)


def _cell_width(cell: Cell) -> int:
    return cell.cell_len if isinstance(cell, Text) else max(map(cell_len, cell.split("\n")))
