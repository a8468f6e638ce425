"""Insert many rows by one statement on SQLite.

Each statement releases the GIL, so fewer statements mean that fewer other threads run in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, compress
from operator import not_
from sqlite3 import Connection

STATEMENT_ROWS = (100, 10, 1)
"""Rows in one statement. Few sizes, so that all statements stay prepared."""
MIN_SHARED_ROWS = 10
"""Number of rows from which on it pays to look for columns with one value."""


@cache
def statement(insert_one: str, shared: tuple[str, ...], rows: int = 1) -> str:
    """Return the INSERT for several rows.

    Args:
        insert_one: The INSERT for one row.
        shared: Columns with the same value in all rows. They are the first parameters.
        rows: Number of rows.
    """
    head, _, rest = insert_one.partition(" VALUES (")
    own = [name for name in _columns(insert_one) if name not in shared]
    columns = [*("?" for _ in shared), *(f"column{number}" for number in range(1, len(own) + 1))]
    row = f"({', '.join('?' for _ in own)})"
    into, tail = f"{head.partition('(')[0]}({', '.join([*shared, *own])})", rest.partition(")")[2]
    # Not by numbers (?1), which sqlite3 takes for names. Without WHERE, SQLite would parse ON
    # CONFLICT as a part of a join.
    return (
        f"{into} SELECT {', '.join(columns)} FROM (VALUES {', '.join([row] * rows)}) "  # noqa: S608
        f"WHERE true{tail}"
    )


@cache
def _columns(insert_one: str) -> list[str]:
    return insert_one.partition(" VALUES (")[0].partition("(")[2].rstrip(")").split(", ")


def insert(
    run: Connection,
    insert_one: str,
    shared: Mapping[str, object],
    rows: Sequence[tuple[object, ...]],
    /,
) -> tuple[int, int]:
    """Insert rows.

    Args:
        run: The connection.
        insert_one: The INSERT for one row.
        shared: Columns with the same value in all rows.
        rows: Values of the other columns.

    Returns:
        The number of inserted rows, and the id of the last one.
    """
    if len(rows) >= MIN_SHARED_ROWS:
        shared, rows = _find_shared(insert_one, shared, rows)
    start = inserted = last = 0
    names, values = tuple(shared), tuple(shared.values())
    for size in STATEMENT_ROWS:
        while len(rows) - start >= size:
            parameters = (*values, *chain.from_iterable(rows[start : start + size]))
            cursor = run.execute(statement(insert_one, names, size), parameters)
            inserted += cursor.rowcount
            last = cursor.lastrowid or 0
            start += size
    return inserted, last


def _find_shared(
    insert_one: str, shared: Mapping[str, object], rows: Sequence[tuple[object, ...]]
) -> tuple[Mapping[str, object], Sequence[tuple[object, ...]]]:
    """Move columns that happen to have one value to `shared`: comparing is faster than binding."""
    names = [name for name in _columns(insert_one) if name not in shared]
    columns = list(zip(*rows, strict=True))
    same = [
        column[0] == column[-1] and column.count(column[0]) == len(column) for column in columns
    ]
    if all(same):
        return shared, rows
    values = {name: column[0] for name, column in compress(zip(names, columns, strict=True), same)}
    return {**shared, **values}, list(zip(*compress(columns, map(not_, same)), strict=True))
