"""Checks: measured values, limits, and invalid options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.partitions import Check, Finding, drop, freshness, not_null, row_count, schema, unique
from redrive.partitions.datasets.checks import DuplicateCounter

from ..written import written_run


def run_check(check: Check, rows: list[dict[str, Any]], **more: Any) -> Finding:
    finding = check(written_run(rows, **more))
    assert isinstance(finding, Finding)
    return finding


ROWS: list[dict[str, Any]] = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 2, "name": None}]


def test_row_count() -> None:
    assert run_check(row_count(min=1), ROWS) == Finding(True, 3, {"min": 1}, "3 rows; at least 1 wanted")
    assert run_check(row_count(min=4), ROWS) == Finding(False, 3, {"min": 4}, "3 rows; at least 4 wanted")
    assert run_check(row_count(min=1, max=2), ROWS) == Finding(False, 3, {"min": 1, "max": 2}, "3 rows; 1 to 2 wanted")
    assert run_check(row_count(), []).ok


def test_not_null() -> None:
    assert run_check(not_null("id"), ROWS) == Finding(True, 0, 0, "")
    assert run_check(not_null("id", "name"), ROWS) == Finding(False, 1, 0, "name is missing in 1 of 3 rows, first in row 3")
    assert run_check(not_null("nmae"), ROWS) == Finding(False, 3, 0, "nmae is missing in 3 of 3 rows, first in row 1")


def test_unique() -> None:
    assert run_check(unique("id", "name"), ROWS) == Finding(True, 0, 0, "")
    assert run_check(unique("id"), ROWS) == Finding(False, 1, 0, "1 of 3 rows is a duplicate; first in row 3: id = 2")
    assert not run_check(unique("a"), [{"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}]).ok
    assert run_check(unique("a"), [{"a": 1}, {"a": "1"}, {"a": True}]).ok


@given(st.lists(st.integers(0, 40)), st.integers(1, 10))
def test_duplicates_are_counted_in_memory_and_in_files(values: list[int], in_memory: int) -> None:
    with closing(DuplicateCounter(in_memory)) as seen:
        for value in values:
            seen.add(str(value).encode())
        assert seen.count() == len(values) - len(set(values))


def test_schema() -> None:
    check = schema({"id": int, "name": str | None})
    assert run_check(check, ROWS) == Finding(True, 0, 0, "")
    bad = run_check(schema({"id": str, "x": Any}), ROWS)
    assert bad == Finding(False, 3, 0, "3 of 3 rows do not fit; row 1: id: expected str, not int")
    assert run_check(schema({"id": int, "gone": int}), ROWS).detail.endswith("row 1: gone is missing")
    assert run_check(schema({"id": int}, extra=False), ROWS).detail.endswith("row 1: name is not in the schema")


@pytest.mark.parametrize(
    ("kind", "fits", "does_not"),
    [
        (float, [1, 1.5], [True, "1", None]),
        (int, [1], [1.5, True, "1"]),
        (bool, [True], [1]),
        (date, ["2026-01-31"], ["2026-02-30", 5]),
        (datetime, ["2026-01-31T05:00:00Z"], ["yesterday", 5]),
        (list[int], [[1]], [{"a": 1}]),
        ((int, str), [1, "a"], [None]),
        (dict, [{"a": 1}], [[1]]),
    ],
)
def test_types_of_columns(kind: Any, fits: list[Any], does_not: list[Any]) -> None:
    check = schema({"x": kind})
    assert all(run_check(check, [{"x": value}]).ok for value in fits)
    assert not any(run_check(check, [{"x": value}]).ok for value in does_not)


def test_freshness() -> None:
    rows: list[dict[str, Any]] = [{"at": "2026-01-31T20:00:00"}, {"at": "2026-01-31T23:30:00+00:00"}, {"at": None}]
    assert run_check(freshness("at", within=3600), rows).ok
    late = run_check(freshness("at", within=timedelta(minutes=10)), rows)
    assert (late.ok, late.value, late.limit) == (False, 1800.0, 600.0)
    early = datetime(2026, 1, 31, 23, 35, tzinfo=timezone.utc)
    assert run_check(freshness("at", within=600), rows, at=early).value == 300.0, (
        "the day is not over: the run's own moment counts"
    )
    assert run_check(freshness("at", within=1), [{"at": "2026-01-31"}]).ok, "a date counts to its end"
    assert run_check(freshness("at", within=1), [{}]).detail == "no row has a timestamp in at"
    with pytest.raises(ValueError, match="at is 'soon', not a timestamp in ISO form"):
        run_check(freshness("at", within=1), [{"at": "soon"}])


def test_drop() -> None:
    before = written_run([{"id": n} for n in range(100)], run_id="r-0")
    assert run_check(drop(max=0.3), ROWS) == Finding(True, None, -0.3, "nothing to compare with; the current run has no rows")
    assert run_check(drop(max=0.3), [{"id": n} for n in range(70)], previous=before).ok
    lost = run_check(drop(max=0.3), [{"id": n} for n in range(39)], previous=before)
    assert lost == Finding(False, -0.61, -0.3, "39 rows; the current run r-0 has 100")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: row_count(min=-1), "min must be at least 0"),
        (lambda: row_count(min=3, max=2), "no number is at least 3 and at most 2"),
        (lambda: row_count(min="1"), "min must be a whole number"),  # type: ignore[arg-type]
        (not_null, r"not_null\(\) needs column names"),
        (lambda: unique(3), "a column name is a string"),  # type: ignore[arg-type]
        (lambda: schema({}), "schema.. says what a row has"),
        (lambda: schema({"a": set}), "the column 'a' cannot be of <class 'set'>; known: str, int"),
        (lambda: drop(max=30), "max is a part of one, from 0 to 1, not 30"),
        (lambda: freshness("at", within=0), "within must be above 0"),
    ],
)
def test_invalid_options_are_rejected(make: Callable[[], Check], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        make()
