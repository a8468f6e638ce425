"""Times as the CLI and the console print and read them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from redrive.ops.render import ago, both, moment, utc

NOW = datetime(2026, 1, 31, 12, 30, 5, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "now"), (0.4, "now"), (12, "12 s ago"), (119, "119 s ago"), (120, "2 min ago"), (7200, "2 h ago"),
        (90000, "25 h ago"), (172800, "2 d ago"), (-30, "in 30 s"), (-3700, "in 62 min"), (86400 * 3000, "3,000 d ago"),
    ],
)  # fmt: skip
def test_ago_has_one_unit(seconds: float, said: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == said


def test_times_are_printed_in_utc() -> None:
    elsewhere = datetime(2026, 1, 31, 14, 30, 5, tzinfo=timezone(timedelta(hours=2)))
    assert utc(elsewhere) == "2026-01-31 12:30:05"
    assert both(elsewhere, NOW + timedelta(minutes=5)) == "5 min ago, 2026-01-31 12:30:05 UTC"
    assert (ago(None, NOW), utc(None), both(None, NOW)) == ("–", "–", "–")


def test_a_time_is_an_age_or_iso_8601() -> None:
    now = datetime.now(timezone.utc)
    for text, seconds in (("90s", 90), ("30min", 1800), ("5m", 300), ("1.5 h", 5400), ("7d", 604800), ("2w", 1209600)):
        assert abs((now - moment(text)).total_seconds() - seconds) < 5
    assert moment("2026-01-31T12:30:05") == NOW
    assert moment("2026-01-31T14:30:05+02:00") == NOW
    assert moment("2026-01-31") == NOW.replace(hour=0, minute=0, second=0)
    for wrong in ("", "yesterday", "5 parsecs", "-3h", "99999999999999w"):
        with pytest.raises(ValueError, match="invalid time"):
            moment(wrong)
