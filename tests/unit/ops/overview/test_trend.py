"""Trend: hours from slots of ten minutes, the start, and whether it grows."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from redrive.console.render.fragments import bars
from redrive.ops.overview.trend import HOURS, NONE, SLOT, trend

NOW = 3_000_000


def moment(slot: int) -> datetime:
    return datetime.fromtimestamp(0, timezone.utc) + slot * SLOT


def test_slots_become_hours_and_the_last_hour_ends_now() -> None:
    counted = [
        (NOW - 143, NOW - 143, 7),
        (NOW - 150, NOW - 144, 100),
        (NOW - 8, NOW - 6, 5),
        (NOW - 5, NOW, 3),
        (NOW + 1, NOW + 1, 50),
    ]
    found = trend(counted, NOW)
    assert (len(found.hours), found.hours[0], found.hours[-2], found.hours[-1]) == (HOURS, 7, 5, 3)
    assert (found.hour, found.day) == (3, 15)


def test_since_is_the_start_of_uninterrupted_failures() -> None:
    assert trend([(NOW - 20, NOW - 18, 1), (NOW - 8, NOW - 7, 1), (NOW - 5, NOW, 3)], NOW).since == moment(NOW - 8)
    assert trend([(NOW - 5, NOW - 3, 1)], NOW).since == moment(NOW - 5)
    assert trend([(NOW - 5, NOW - 4, 1)], NOW).since is None
    assert trend([], NOW) is NONE


@pytest.mark.parametrize(
    ("last", "before", "growing"), [(9, 0, False), (10, 0, True), (100, 23 * 49, True), (100, 23 * 50, False), (0, 0, False)]
)
def test_growing_means_many_and_twice_as_many_as_before(last: int, before: int, growing: bool) -> None:
    assert trend([(NOW, NOW, last), (NOW - 60, NOW - 60, before)], NOW).is_growing is growing


def test_a_trend_that_stopped_does_not_grow() -> None:
    stopped = trend([(NOW - 5, NOW - 5, 40)], NOW)
    assert (stopped.is_unusual, stopped.is_growing, stopped.since) == (True, False, None)


def test_bars_are_relative_to_the_highest_value() -> None:
    assert bars([0, 1, 2]) == "M4 20v-10h3v10zM8 20v-20h3v20z"
    assert bars([1, 1_000_000]).startswith("M0 20v-2h3")
    assert bars([0, 0]) == ""


def test_a_slot_is_ten_minutes_long() -> None:
    assert moment(NOW + 1) - moment(NOW) == timedelta(minutes=10)
