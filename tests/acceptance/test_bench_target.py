"""Targets of benchmarks: a target is missed only if noise cannot be the reason."""

import pytest

from benchmarks.interval import Interval, number
from benchmarks.table import Table
from benchmarks.target import MeasuredTarget, Outcome, Side, Target, check_targets, summary_line, table, verdict


def measured_target(what: str, limit: float, figure: Interval | None) -> MeasuredTarget[None]:
    return MeasuredTarget(what, "≤", limit, "×", lambda _: figure)


@pytest.mark.parametrize(
    ("figure", "side", "expected"),
    [
        (Interval(0.7, 0.6, 0.8), "≥", "ok"),
        (Interval(0.6, 0.6, 0.6), "≥", "ok"),
        (Interval(0.55, 0.4, 0.65), "≥", "ok within noise"),
        (Interval(0.55, 0.5, 0.59), "≥", "MISSED"),
        (Interval(0.5, 0.4, 0.6), "≤", "ok"),
        (Interval(0.6, 0.6, 0.6), "≤", "ok"),
        (Interval(0.55, 0.5, 0.7), "≤", "ok"),
        (Interval(0.7, 0.5, 0.8), "≤", "ok within noise"),
        (Interval(0.7, 0.61, 0.8), "≤", "MISSED"),
        (None, "≥", "NOT MEASURED"),
        (None, "≤", "NOT MEASURED"),
    ],
)
def test_a_target_is_missed_only_where_the_whole_interval_misses_it(figure: Interval | None, side: Side, expected: str) -> None:
    assert verdict(figure, side, 0.6) == expected


def test_the_last_line_names_missed_targets() -> None:
    met = measured_target("met", 2, Interval(1, 1, 1))
    noisy = measured_target("noisy", 2, Interval(3, 1, 4))
    missed = measured_target("slow", 2, Interval(3, 2.5, 4))
    unknown = measured_target("unknown", 2, None)
    good = check_targets(None, [met, noisy])
    assert summary_line(good) == "all 2 targets met"
    assert not any(each.missed for each in good)
    bad = check_targets(None, [met, noisy, missed, unknown])
    assert summary_line(bad) == "2 of 4 targets missed: slow (missed); unknown (not measured)"
    assert [each.missed for each in bad] == [False, False, True, True]


def test_the_table_lists_targets_with_verdicts() -> None:
    outcomes = [Outcome(Target("a", "≥", 2, "×"), Interval(3, 2, 4)), Outcome(Target("b", "≤", 0.5, " ms"), None)]
    assert table(outcomes).rows == [("a", "≥ 2×", "3 (2–4)×", "ok"), ("b", "≤ 0.50 ms", "–", "NOT MEASURED")]


def test_a_median_has_an_interval() -> None:
    # n = 41: the ranks 14 and 28 enclose the median with 97.2 %, the next ones only with 94.0 %.
    assert Interval.of([float(n) for n in range(41, 0, -1)]) == Interval(21, 14, 28)
    assert Interval.of([3.0, 1.0, 2.0]) == Interval(2, 1, 3)
    assert Interval.of([4.0]) == Interval.exactly(4)
    with pytest.raises(ValueError, match="no samples"):
        Interval.of([])


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (3, "3"), (4.404, "4.40"), (13.04, "13.0"), (479.2, "479"), (0.05, "0.05")]
)
def test_numbers_are_printed_short(value: float, text: str) -> None:
    assert number(value) == text


def test_a_table_is_printed_for_terminal_and_markdown() -> None:
    table = Table("T", ("case", "n"), [("redrive", "1"), ("longer name", "20")])
    assert table.text().splitlines() == [
        "T",
        "case          n",
        "-----------  --",
        "redrive       1",
        "longer name  20",
    ]
    assert "| **redrive** | **1** |\n| longer name | 20 |" in table.markdown()
