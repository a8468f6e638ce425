"""Tables for the width there is, and moments as people read them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from rich.console import Console

from redrive.cli.render.moments import ago, both, moment, utc
from redrive.cli.render.table import Column, fitted, natural

COLUMNS = [
    Column("id", number=True),
    Column("kind", least=8),
    Column("when", leave=2),
    Column("error", least=8, most=20, cut=True, leave=1),
]
ROWS = [
    {"id": "7", "kind": "crm.sync", "when": "5 min ago", "error": "TimeoutError: read timed out after ten seconds"},
    {"id": "12", "kind": "reports.nightly.summary", "when": "now", "error": "–"},
]


def drawn(width: int) -> list[str]:
    out = Console(width=width, color_system=None)
    with out.capture() as captured:
        out.print(fitted(COLUMNS, ROWS, width))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_with_room_everything_is_whole() -> None:
    assert drawn(100)[1] == " 7  crm.sync                 5 min ago  TimeoutError: read timed out after ten seconds"


def test_a_column_with_a_most_leaves_room_to_others() -> None:
    assert natural(COLUMNS, ROWS) == 2 + 2 + 23 + 2 + 9 + 2 + 20
    assert drawn(70) == [
        "id  kind                     when       error",
        " 7  crm.sync                 5 min ago  TimeoutError: read …",
        "12  reports.nightly.summary  now        –",
    ]


def test_with_less_what_can_shrinks_and_then_columns_are_left_out() -> None:
    assert drawn(40) == [
        "id  kind             when       error",
        " 7  crm.sync         5 min ago  Timeout…",
        "12  reports.nightly  now        –",
        "    .summary",
    ]
    assert drawn(30)[0].split() == ["id", "kind", "error"]
    assert drawn(14)[0].split() == ["id", "kind"]
    for width in range(12, 80):
        assert max(map(len, drawn(width))) <= width


NOW = datetime(2026, 1, 31, 12, 30, 5, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "now"), (0.4, "now"), (12, "12 s ago"), (119, "119 s ago"), (120, "2 min ago"), (7200, "2 h ago"),
        (90000, "25 h ago"), (172800, "2 d ago"), (-30, "in 30 s"), (-3700, "in 62 min"), (86400 * 3000, "3,000 d ago"),
    ],
)  # fmt: skip
def test_how_long_ago(seconds: float, said: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == said


def test_moments_are_in_utc() -> None:
    elsewhere = datetime(2026, 1, 31, 14, 30, 5, tzinfo=timezone(timedelta(hours=2)))
    assert utc(elsewhere) == "2026-01-31 12:30:05"
    assert both(elsewhere, NOW + timedelta(minutes=5)) == "5 min ago, 2026-01-31 12:30:05 UTC"
    assert (ago(None, NOW), utc(None), both(None, NOW)) == ("–", "–", "–")


def test_what_people_write_as_a_moment() -> None:
    now = datetime.now(timezone.utc)
    for text, seconds in (("90s", 90), ("30min", 1800), ("5m", 300), ("1.5 h", 5400), ("7d", 604800), ("2w", 1209600)):
        assert abs((now - moment(text)).total_seconds() - seconds) < 5
    assert moment("2026-01-31T12:30:05") == NOW
    assert moment("2026-01-31T14:30:05+02:00") == NOW
    assert moment("2026-01-31") == NOW.replace(hour=0, minute=0, second=0)
    for wrong in ("", "yesterday", "5 parsecs", "-3h", "99999999999999w"):
        with pytest.raises(ValueError, match="invalid time"):
            moment(wrong)
