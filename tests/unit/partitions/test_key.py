"""The names of a partition are checked, and its text form is parsed."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.partitions.key import Partition, days_between, parse_day, parse_range

NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=40)


@pytest.mark.req("P-1")
@given(NAMES, NAMES, NAMES, st.dates())
def test_a_partition_survives_its_text_form(source: str, customer: str, query: str, on: date) -> None:
    partition = Partition(source, customer, query, on)
    assert Partition.parse(str(partition)) == partition


def test_names_may_contain_commas_slashes_percents_and_unicode() -> None:
    assert str(Partition("crm", "a/b, 100 % Ünï", "q", date(2026, 1, 31))) == "crm/a%2Fb, 100 %25 Ünï/q/2026-01-31"
    assert Partition("crm", "x", "q", "2026-01-31").logical_date == date(2026, 1, 31)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("", "a", "q", "2026-01-31"), "source must be printable"),
        (("crm", " ", "q", "2026-01-31"), "customer_id must be printable"),
        (("crm", "a\nb", "q", "2026-01-31"), "customer_id must be printable"),
        (("crm", "a", 5, "2026-01-31"), "query_name must be text"),
        (("crm", "a", "q" * 301, "2026-01-31"), "longer than 300 bytes"),
        (("crm", "\ud800", "q", "2026-01-31"), "customer_id"),
        (("crm", "a", "q", "2026-02-30"), "not a valid date"),
        (("crm", "a", "q", "20260131"), "is written year-month-day"),
        (("crm", "a", "q", "yesterday"), "not a valid date"),
        (("crm", "a", "q", 5), "must be a date"),
        (("crm", "a", "q", datetime(2026, 1, 31)), "a day, not a timestamp"),  # noqa: DTZ001
    ],
)
def test_invalid_names_are_rejected(wrong: tuple[Any, ...], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Partition(*wrong)


@pytest.mark.parametrize("wrong", ["", "crm/a/q", "crm/a/b/q/2026-01-31", "crm/a/q/2026-13-01", "crm/%ff/q/2026-01-31"])
def test_invalid_texts_are_rejected(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"written|date|decode"):
        Partition.parse(wrong)
    with pytest.raises(TypeError, match="written"):
        Partition.parse(5)  # type: ignore[arg-type]


def test_ranges_are_parsed_and_checked() -> None:
    assert parse_range("2026-01-30", "2026-02-01") == (date(2026, 1, 30), date(2026, 2, 1))
    assert parse_range("2026-01-30") == (date(2026, 1, 30),) * 2
    assert len(list(days_between(*parse_range("2028-02-28", "2028-03-01")))) == 3
    with pytest.raises(ValueError, match="reversed"):
        parse_range("2026-02-01", "2026-01-01")
    assert parse_day("x", date(2026, 1, 1)) == date(2026, 1, 1)
