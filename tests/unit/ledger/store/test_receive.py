"""Many rows inserted by one statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.ledger.store.sqlite.receive import MIN_SHARED_ROWS, STATEMENT_ROWS, insert_rows

ONE = "INSERT INTO thing (at, kind, payload, note) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
ROW = st.tuples(st.sampled_from(["mail", "sms"]), st.binary(max_size=2), st.none() | st.text(max_size=2))


@pytest.fixture(scope="module")
def run() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE thing (id integer PRIMARY KEY AUTOINCREMENT, at, kind, payload, note)")
        yield connection


@given(
    rows=st.lists(ROW, max_size=2 * MIN_SHARED_ROWS)
    | st.builds(lambda row, many: [row] * many, ROW, st.integers(1, STATEMENT_ROWS[0] + MIN_SHARED_ROWS + 1))
)
def test_inserted_rows_are_unchanged_and_in_order(run: sqlite3.Connection, rows: list[tuple[object, ...]]) -> None:
    run.execute("DELETE FROM thing")
    inserted, last = insert_rows(run, ONE, {"at": 7}, rows)
    found = run.execute("SELECT id, at, kind, payload, note FROM thing ORDER BY id").fetchall()
    assert [row[1:] for row in found] == [(7, *row) for row in rows]
    assert inserted == len(rows)
    assert [row[0] for row in found] == list(range(last - len(rows) + 1, last + 1)), "ids follow one another"


def test_a_value_that_all_rows_share_is_bound_once(run: sqlite3.Connection) -> None:
    handed: list[tuple[object, ...]] = []

    class Heard:
        def execute(self, text: str, given: tuple[object, ...]) -> sqlite3.Cursor:
            handed.append(given)
            return run.execute(text, given)

    heard: Any = Heard()
    payloads = [bytes([number]) for number in range(MIN_SHARED_ROWS)]
    insert_rows(heard, ONE, {"at": 7}, [("mail", payload, None) for payload in payloads])
    assert handed == [(7, "mail", None, *payloads)]
