"""Sparklines and timelines in text."""

from __future__ import annotations

from redrive.cli.render.charts import pair_sums, sparkline, timeline


def test_sparkline_is_relative_to_the_highest_value() -> None:
    assert sparkline([0, 1, 4, 8]) == "·▁▄█"
    assert sparkline([]) == ""
    assert sparkline([0, 1, 1_000_000]) == "·▁█"


def test_pair_sums_keep_the_last_values_together() -> None:
    assert pair_sums([1, 2, 3, 4]) == [3, 7]
    assert pair_sums([9, 1, 2]) == [9, 3]


def draw(waits: list[float], limit: float | None = None, width: int = 30, *, has_more: bool = False) -> list[str]:
    return [line.plain for line in timeline(waits, limit, width, has_more=has_more)]


def test_timeline_draws_attempts_to_scale() -> None:
    assert draw([1, 2]) == ["┃─────────┃──────────────────┃", "0         1                3 s"]
    assert draw([1, 2], 3) == ["┃─────────┃──────────────────✗", "0         1                3 s"]
    assert draw([300, 600]) == ["┃─────────┃──────────────────┃", "0         5             15 min"]
    assert draw([0, 0]) == ["┃─┃─┃", "0 s"]
    assert draw([0.001, 0.002, 100])[0] == "┃─┃─┃────────────────────────┃"
    assert draw([1] * 50, width=20, has_more=True)[0] == "┃" * 18 + " …"
