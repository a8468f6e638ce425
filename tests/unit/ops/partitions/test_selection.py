"""The selection of partitions by words and options."""

from __future__ import annotations

from datetime import date, datetime, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.ops.partitions.selection import PartitionFilter, not_future, select_partitions, short
from redrive.partitions.key import Partition

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@pytest.mark.req("P-10")
@pytest.mark.parametrize(
    ("zone", "today", "name"),
    [
        (None, date(2026, 3, 2), "UTC+14"),
        (ZoneInfo("UTC"), date(2026, 3, 1), "UTC"),
        (ZoneInfo("Pacific/Kiritimati"), date(2026, 3, 2), "Pacific/Kiritimati"),
        (ZoneInfo("Pacific/Midway"), date(2026, 3, 1), "Pacific/Midway"),
    ],
)
def test_the_last_day_is_today_in_the_time_zone_of_the_schedule(zone: ZoneInfo | None, today: date, name: str) -> None:
    not_future(today, NOON, zone)
    with pytest.raises(ValueError, match="is in the future") as caught:
        not_future(today.replace(day=today.day + 1), NOON, zone)
    assert str(caught.value).endswith(f"the last day to extract is {today} (today in {name})")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("crm", PartitionFilter(source="crm")),
        ("crm/orders", PartitionFilter(source="crm", query_name="orders")),
        ("*/acme/*/*", PartitionFilter(customers=("acme",))),
        (
            "crm/a%2Fb/orders/2026-06-01..2026-06-30",
            PartitionFilter(
                source="crm", customers=("a/b",), query_name="orders", since=date(2026, 6, 1), until=date(2026, 6, 30)
            ),
        ),
        ("crm/*/orders/2026-06-01..", PartitionFilter(source="crm", query_name="orders", since=date(2026, 6, 1))),
        ("crm/*/orders/..2026-06-01", PartitionFilter(source="crm", query_name="orders", until=date(2026, 6, 1))),
        ("*/*/*/2026-06-01", PartitionFilter(since=date(2026, 6, 1), until=date(2026, 6, 1))),
    ],
)
def test_a_short_form_selects_partitions(word: str, expected: PartitionFilter) -> None:
    assert short(word) == expected


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["crm/acme/orders"], "invalid selection"),
        (["crm//orders/2026-06-01"], "customer_id must be printable and not empty"),
        (["crm/a/orders/2026-06-31"], "not a valid date"),
        (["crm/a/orders/2026-06-30..2026-06-01"], "range is reversed"),
        (["crm/*/orders/2026-06-01", "crm/a/orders/2026-06-01"], "pass any number of partitions in full"),
    ],
)
def test_an_invalid_short_form_is_rejected(words: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        select_partitions(words)


def test_words_and_options_are_combined() -> None:
    both = select_partitions(["crm/*/orders/*"], customers=["a", "a", "b"], since="2026-06-01", status="success")
    assert both == PartitionFilter(
        source="crm", query_name="orders", customers=("a", "b"), since=date(2026, 6, 1), shades=("success", "refresh_failed")
    )
    full = select_partitions(["crm/a/orders/2026-06-01", "crm/b/orders/2026-06-01"])
    assert [str(one) for one in full.keys or ()] == ["crm/a/orders/2026-06-01", "crm/b/orders/2026-06-01"]
    with pytest.raises(ValueError, match="source is set twice, to different values: crm and ads"):
        select_partitions(["crm/orders"], source="ads")


NAMES = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" ,/*%."), min_size=1, max_size=20).filter(
    lambda name: bool(name.strip()) and name.isprintable()
)


@given(NAMES, NAMES, NAMES, st.dates())
@example("*", "a, b/c", "%2F", date(2026, 6, 1))
def test_a_full_partition_name_selects_only_itself(source: str, customer: str, query: str, day: date) -> None:
    one = Partition(source, customer, query, day)
    assert select_partitions([str(one)]) == PartitionFilter(keys=(one,))
    assert short(f"{one!s}..{day}").customers == (customer,)
