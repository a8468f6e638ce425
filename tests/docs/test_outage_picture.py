"""The picture of an outage agrees with the rule, in an hour of simulated time."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from redrive.core.outage import Parking

SCRIPT = Path(__file__).parents[2] / "scripts" / "outage_picture.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.req("L-7")
def test_an_outage_of_an_hour_costs_no_job_an_attempt(script: dict[str, Any]) -> None:
    parking = Parking()
    story = script["simulate"](parking)
    assert Counter(kind for _, kind in story.dots) == {"success": 1125, "failed": 46, "probe": 16}
    assert len(story.done) == 1125, "all jobs are done"
    assert max(job.charged for job in story.done) == 0
    assert max(job.uncharged for job in story.done) <= parking.uncharged
    ((parked, released),) = story.parked
    assert (parked - script["DOWN"], released >= script["UP"]) == (72, True)


def test_the_committed_picture_is_current(script: dict[str, Any]) -> None:
    drawn = script["draw"](script["simulate"](Parking()))
    assert script["PICTURE"].read_text(encoding="utf-8") == drawn, "run scripts/outage_picture.py"
