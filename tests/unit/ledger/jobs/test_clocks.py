"""Steps of the ledger's clock, from readings that took some time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from redrive.ledger.jobs.clocks import ClockReading, step

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def reading(theirs: float, began: float, ended: float) -> ClockReading:
    return ClockReading(NOON + timedelta(seconds=theirs), began, ended)


@pytest.mark.req("L-9")
@pytest.mark.parametrize("read_at", [2.0, 4.5, 7.0])
def test_a_slow_reading_is_not_a_step(read_at: float) -> None:
    slow = reading(read_at, 2.0, 7.0)
    assert not slow.is_prompt
    assert step(reading(0, 0.0, 0.0), slow) == 0.0
    assert step(slow, reading(8, 8.0, 8.0)) == 0.0


@pytest.mark.req("L-9")
@pytest.mark.parametrize("by", [-3600.0, -3.0, 3.0, 3600.0])
def test_a_step_between_prompt_readings_is_measured(by: float) -> None:
    later = reading(2 + by, 2.0, 2.1)
    assert later.is_prompt
    stepped = step(reading(0, 0.0, 0.1), later)
    assert abs(stepped) <= abs(by)
    assert stepped == pytest.approx(by, abs=0.2)
