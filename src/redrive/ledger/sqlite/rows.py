"""Rows: many of them inserted by one statement. Whoever runs it lets other threads go on meanwhile, once and not for each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, count
from sqlite3 import Connection

SIZES = (100, 10, 1)
"""Rows in one statement: few sizes, so that all of them stay prepared."""


@cache
def text(one: str, alike: tuple[str, ...], rows: int = 1) -> str:
    """The statement for so many rows, made of the one for a single row. alike: columns that are the same in all of them: these
    come first among the parameters, and once."""
    head, _, rest = one.partition(" VALUES (")
    tail = rest.partition(")")[2]
    columns = head.partition("(")[2].rstrip(")").split(", ")
    own = len(columns) - len(alike)
    shared = {name: f"?{number}" for number, name in enumerate(alike, 1)}
    rows_of = []
    for row in range(rows):
        numbers = count(len(alike) + row * own + 1)
        rows_of.append(", ".join(shared.get(name) or f"?{next(numbers)}" for name in columns))
    return f"{head} VALUES {', '.join(f'({row})' for row in rows_of)}{tail}"


def insert(run: Connection, one: str, alike: Mapping[str, object], rows: Sequence[tuple[object, ...]], /) -> tuple[int, int]:
    """Insert these by a statement for one row; how many were, and the number of the last. rows: what is not alike in all."""
    at = inserted = last = 0
    names, values = tuple(alike), tuple(alike.values())
    for size in SIZES:
        while len(rows) - at >= size:
            cursor = run.execute(text(one, names, size), (*values, *chain.from_iterable(rows[at : at + size])))
            inserted += cursor.rowcount
            last = cursor.lastrowid or 0
            at += size
    return inserted, last
