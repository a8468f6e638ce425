"""Rows: many of them inserted by one statement. Whoever runs it lets other threads go on meanwhile, once and not for each row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from sqlite3 import Connection

SIZES = (100, 10, 1)
"""Rows in one statement: few sizes, so that all of them stay prepared."""


@cache
def _text(one: str, rows: int) -> str:
    head, _, rest = one.partition(" VALUES (")
    places, _, tail = rest.partition(")")
    return f"{head} VALUES {', '.join([f'({places})'] * rows)}{tail}"


def insert(run: Connection, one: str, rows: Sequence[tuple[object, ...]], /) -> tuple[int, int]:
    """Insert these by a statement for one row; how many were, and the number of the last."""
    at = inserted = last = 0
    for size in SIZES:
        while len(rows) - at >= size:
            cursor = run.execute(_text(one, size), tuple(chain.from_iterable(rows[at : at + size])))
            inserted += cursor.rowcount
            last = cursor.lastrowid or 0
            at += size
    return inserted, last
