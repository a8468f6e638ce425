"""Figures of a run: peak, amplification, goodput and the time to recover."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.simulation.figures import LoadCurve, OutageFigures, summarise
from redrive.simulation.scenario import scenario_from_mapping


def figures(outages: list[dict[str, float]], **rows: list[int]) -> OutageFigures:
    content: dict[str, Any] = {
        "minutes": 0.5,
        "service": {"capacity": 100},
        "clients": {"count": 10, "every": 1},
        "outage": outages,
        "policy": [{}],
    }
    curve = {name: tuple(row) for name, row in rows.items()}
    return summarise(scenario_from_mapping(content), LoadCurve(**curve, reasons={}))


def run(recovers_after: int) -> OutageFigures:
    """10 s of 10 calls, 10 s in which each call makes three attempts, and failures until the service has recovered."""
    bad = 10 + recovers_after
    return figures(
        [{"at": 10, "lasts": 10}],
        calls=[10] * 30,
        attempts=[10] * 10 + [30] * bad + [10] * (20 - bad),
        failed_attempts=[0] * 10 + [30] * bad + [0] * (20 - bad),
        succeeded=[10] * 10 + [0] * bad + [10] * (20 - bad),
        failed=[0] * 10 + [10] * bad + [0] * (20 - bad),
    )


def test_figures_of_an_outage() -> None:
    result = run(0)
    assert (result.normal_load, result.peak_load, result.peak_factor, result.amplification) == (10, 30, 3, 3)
    assert (result.calls, result.attempts, result.failed_calls) == (300, 500, 100)
    assert result.success_rate == pytest.approx(2 / 3, abs=1e-5)


@pytest.mark.parametrize(("seconds", "expected"), [(0, 0), (3, 3), (5, 5), (6, None), (10, None)])
def test_recovery_needs_five_good_seconds(seconds: int, expected: float | None) -> None:
    assert run(seconds).recovered_after == expected


def test_without_an_outage_the_whole_run_counts() -> None:
    ten = [10] * 30
    result = figures([], calls=ten, attempts=[20] * 30, failed_attempts=ten, succeeded=ten, failed=[0] * 30)
    assert (result.amplification, result.recovered_after, result.success_rate) == (2, None, 1)
