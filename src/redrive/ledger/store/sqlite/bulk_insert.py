"""Rows: many of them inserted by one statement. Whoever runs it lets other threads go on meanwhile, once and not for each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, compress
from operator import not_
from sqlite3 import Connection

SIZES = (100, 10, 1)
"""Rows in one statement: few sizes, so that all of them stay prepared."""
MANY = 10
"""Of so many on, it pays to see what they have in common."""


@cache
def text(one: str, alike: tuple[str, ...], rows: int = 1) -> str:
    """The statement for so many rows, made of the one for a single row. alike: columns that are the same in all of them: these
    come first among the parameters, and once."""
    head, _, rest = one.partition(" VALUES (")
    own = [name for name in _columns(one) if name not in alike]
    given = ", ".join([*("?" for _ in alike), *(f"column{number}" for number in range(1, len(own) + 1))])
    values = ", ".join([f"({', '.join('?' for _ in own)})"] * rows)
    # Not by numbers (?1), which sqlite3 takes for names. WHERE: else ON CONFLICT would be taken for that of a join.
    into, tail = f"{head.partition('(')[0]}({', '.join([*alike, *own])})", rest.partition(")")[2]
    return f"{into} SELECT {given} FROM (VALUES {values}) WHERE true{tail}"  # noqa: S608  # of a statement of ours


@cache
def _columns(one: str) -> list[str]:
    return one.partition(" VALUES (")[0].partition("(")[2].rstrip(")").split(", ")


def insert(run: Connection, one: str, alike: Mapping[str, object], rows: Sequence[tuple[object, ...]], /) -> tuple[int, int]:
    """Insert these by a statement for one row; how many were, and the number of the last. rows: what is not alike in all."""
    if len(rows) >= MANY:
        alike, rows = _divided(one, alike, rows)
    at = inserted = last = 0
    names, values = tuple(alike), tuple(alike.values())
    for size in SIZES:
        while len(rows) - at >= size:
            cursor = run.execute(text(one, names, size), (*values, *chain.from_iterable(rows[at : at + size])))
            inserted += cursor.rowcount
            last = cursor.lastrowid or 0
            at += size
    return inserted, last


def _divided(
    one: str, alike: Mapping[str, object], rows: Sequence[tuple[object, ...]]
) -> tuple[Mapping[str, object], Sequence[tuple[object, ...]]]:
    """The same, with columns that happen to have one value moved to what is alike: to hand a value over takes longer than to see
    that it is the same."""
    names = [name for name in _columns(one) if name not in alike]
    columns = list(zip(*rows, strict=True))
    same = [column[0] == column[-1] and column.count(column[0]) == len(column) for column in columns]
    if all(same):
        return alike, rows
    shared = {name: column[0] for name, column in compress(zip(names, columns, strict=True), same)}
    return {**alike, **shared}, list(zip(*compress(columns, map(not_, same)), strict=True))
