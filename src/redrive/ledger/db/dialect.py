"""SQL that differs between SQLite and Postgres, for queries outside of the hot path."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Table, text
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from .session import Session


def on_sqlite(connection: Connection, /) -> bool:
    """Return whether the connection is to SQLite, not to Postgres."""
    return connection.dialect.name == "sqlite"


def upsert(session: Session, table: Table, /) -> Any:
    """Return an INSERT with `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return (sqlite_insert if session.sqlite else postgres_insert)(table)


def from_json(cell: Any, /) -> Any:
    """Return the value of a JSON column, which SQLite returns as text."""
    return json.loads(cell) if isinstance(cell, str) else cell


class PerKind:
    """A query that runs a subquery for each of many job types, in one statement.

    The statement is text, because building and naming an expression takes longer than the query.

    Args:
        build: Returns the SELECT list of a statement, in which `look.kind` is the job type. Gets
            whether it is for SQLite.
    """

    def __init__(self, build: Callable[[bool], str]) -> None:
        values = "(SELECT value AS kind FROM json_each(:kinds)) AS look"
        self._sqlite = text(f"SELECT {build(True)} FROM {values}")  # noqa: S608
        self._postgres = text(
            f"SELECT {build(False)} FROM unnest(CAST(:kinds AS text[])) AS look(kind)"  # noqa: S608
        )

    def execute(
        self, connection: Connection, kinds: Sequence[str], /, **parameters: Any
    ) -> Sequence[Any]:
        """Run the statement. The rows are in no particular order."""
        names = list(kinds)
        if on_sqlite(connection):
            rows = connection.execute(self._sqlite, {"kinds": json.dumps(names), **parameters})
        else:
            rows = connection.execute(self._postgres, {"kinds": names, **parameters})
        return rows.all()
