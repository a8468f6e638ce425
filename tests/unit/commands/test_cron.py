"""Cron schedules in time zones, with clock changes and invalid input."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.commands.cron import Cron

UTC = timezone.utc


def firings(cron: Cron, since: str, many: int) -> list[str]:
    found, at = [], datetime.fromisoformat(since).replace(tzinfo=UTC)
    for _ in range(many):
        at = cron.after(at)
        found.append(f"{at:%m-%d %H:%M}")
    return found


@pytest.mark.req("W-6")
@pytest.mark.parametrize(
    ("line", "zone", "since", "expected"),
    [
        # Prague, 29 March 2026: from 2:00 to 3:00 at 1:00 UTC. Half past two does not exist, so the job runs right after the gap.
        ("30 2 * * *", "Europe/Prague", "2026-03-28T12:00", ["03-29 01:00", "03-30 00:30", "03-31 00:30"]),
        ("0 4 * * *", "Europe/Prague", "2026-03-28T12:00", ["03-29 02:00", "03-30 02:00"]),
        ("*/30 * * * *", "Europe/Prague", "2026-03-29T00:15", ["03-29 00:30", "03-29 01:00", "03-29 01:30"]),
        # 25 October 2026: from 3:00 back to 2:00 at 1:00 UTC. Half past two exists twice, and only the first time counts.
        ("30 2 * * *", "Europe/Prague", "2026-10-24T12:00", ["10-25 00:30", "10-26 01:30", "10-27 01:30"]),
        ("30 2 * * *", "Europe/Prague", "2026-10-25T00:45", ["10-26 01:30"]),
        ("*/30 * * * *", "Europe/Prague", "2026-10-25T00:15", ["10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00"]),
        # Lord Howe Island moves by half an hour.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T00:00", ["10-02 15:45", "10-03 15:30", "10-04 15:15"]),
        ("0 9 * * MON-FRI", "America/New_York", "2026-03-06T20:00", ["03-09 13:00", "03-10 13:00"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", ["02-29 00:00"]),
    ],
)  # fmt: skip
def test_hours_that_a_clock_change_skips_or_repeats(line: str, zone: str, since: str, expected: list[str]) -> None:
    assert firings(Cron(line, zone), since, len(expected)) == expected


@given(
    since=st.datetimes(min_value=datetime(2026, 1, 1), max_value=datetime(2027, 12, 31)),  # noqa: DTZ001  # drawn naive, used as UTC
    zone=st.sampled_from(["UTC", "Europe/Prague", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
)
def test_a_daily_schedule_runs_once_a_day(since: datetime, zone: str, hour: int, minute: int) -> None:
    """Also from the middle of a repeated hour or in a gap: never twice on one day, and never a day without a run."""
    cron = Cron(f"{minute} {hour} * * *", zone)
    at = since.replace(tzinfo=UTC)
    first = cron.after(at)
    second = cron.after(first)
    assert at < first < second
    assert first - at <= timedelta(hours=25)
    days = [moment.astimezone(cron.zone).date() for moment in (first, second)]
    assert days[1] - days[0] == timedelta(days=1)


@pytest.mark.parametrize(
    ("line", "zone", "says"),
    [
        ("0 2 * *", "UTC", r"cron='0 2 \* \*': needs five fields"),
        ("0 0 2 * * *", "UTC", "needs five fields"),
        ("@daily", "UTC", "needs five fields"),
        ("61 2 * * *", "UTC", r"cron='61 2 \* \* \*': bad minute"),
        ("0 2 * * FUN", "UTC", "bad day-of-week"),
        ("0 0 30 2 *", "UTC", "bad day-of-month"),
        ("0 2 * * *", "Europe/Praha", "timezone='Europe/Praha' is not a time zone that this machine knows"),
        ("0 2 * * *", "Europe", "timezone='Europe' is not a time zone"),
        ("0 2 * * *", "../etc/passwd", "is not a time zone"),
        ("0 2 * * *", "", "is not a time zone"),
    ],
)
def test_an_invalid_schedule_is_rejected(line: str, zone: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Cron(line, zone)


def test_a_schedule_and_its_zone_must_be_text() -> None:
    with pytest.raises(TypeError, match="cron= must be text of five fields"):
        Cron(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="timezone= must be the name of a time zone"):
        Cron("0 2 * * *", 2)  # type: ignore[arg-type]


def test_the_text_of_a_schedule_has_fields_and_zone() -> None:
    assert str(Cron("0  2 * * *", "Europe/Prague")) == "0 2 * * * Europe/Prague"
