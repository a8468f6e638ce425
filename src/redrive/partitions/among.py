"""Among: a statement about those that a list names. On Postgres the list is one parameter: to put a hundred into the text of a
statement, and that through a driver, takes longer than the server needs to answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Column, Connection, Text, bindparam, cast, func

from ..ledger.postgres.literal import plain, texts

CHUNK = 1000
"""Of a list that is many parameters."""


class Among:
    """A statement, made from the condition that a column is among some. Immutable: threads may share it."""

    def __init__(self, column: Column[Any], made: Callable[[Any], Any], /) -> None:
        named = isinstance(column.type, Text)
        self._array = texts if named else plain
        self._listed = made(column.in_(bindparam("these", expanding=True)))
        self._one = made(column == func.any(cast(bindparam("these", type_=Text()), ARRAY(Text() if named else BigInteger()))))

    def rows(self, connection: Connection, these: Collection[Any], /) -> Iterator[Any]:
        """What it finds. these: in the order in which they are locked."""
        for found in self._done(connection, these):
            yield from found

    def run(self, connection: Connection, these: Collection[Any], /) -> None:
        """Have it done to these."""
        for _ in self._done(connection, these):
            pass

    def _done(self, connection: Connection, these: Collection[Any]) -> Iterator[Any]:
        if connection.dialect.name != "sqlite":
            if these:
                yield connection.execute(self._one, {"these": self._array(these)})
            return
        listed = list(these)
        for at in range(0, len(listed), CHUNK):
            yield connection.execute(self._listed, {"these": listed[at : at + CHUNK]})
