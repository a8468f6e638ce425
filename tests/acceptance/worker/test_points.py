"""A worker crashes at every step between two durable effects: no job is lost, and only lost attempts are repeated."""

from __future__ import annotations

import pytest

from redrive.ledger.failpoint import WORKER_POINTS

from .shift import Shift, crash_at_point

OTHERS = (
    "turn.before_commit", "turn.after_commit", "settle.in_caller", "caller.before_commit", "caller.after_commit",
    "reap.before_commit", "reap.after_commit", "beat.after_commit",
)  # fmt: skip
"""Crash points of the ledger that a worker reaches."""


@pytest.mark.req("W-5", "L-3", "L-8")
@pytest.mark.parametrize("point", [*WORKER_POINTS, *OTHERS])
def test_a_crash_at_each_point_of_a_worker_loses_no_job(shift: Shift, point: str) -> None:
    found = crash_at_point(shift, point)
    assert found.reached, "it never came to that point"
    assert (found.lost, found.doubled) == ([], [])
