"""An extraction is killed at each boundary, and other processes continue: no data is lost or duplicated."""

from __future__ import annotations

import os
import signal

import pytest

from redrive.ledger.failpoint import RUN_POINTS
from tests.acceptance.crash.still import still

from .lake import Lake

VERDICT = ("partition.judge.before_commit", "partition.judge.after_commit")
LEASE = ("partition.claim.before_commit", "partition.claim.after_commit")
POINTS = (*LEASE, *RUN_POINTS, *VERDICT)
ELSEWHERE = ("partition.claim.after_commit", "run.payload", "run.before_manifest", "run.after_manifest", VERDICT[0])
"""Points that every run also tests on Postgres and S3. A client of S3 takes a second to start."""


@pytest.mark.req("P-2", "P-6", "P-7", "P-12")
@pytest.mark.parametrize(
    ("lake", "point"),
    [*(("sqlite-local", point) for point in POINTS), *(("postgres-s3", point) for point in ELSEWHERE)],
    indirect=["lake"],
)
def test_a_kill_at_each_boundary_loses_nothing(lake: Lake, point: str) -> None:
    assert lake.zygote.wait(lake.hire(crash_at=f"{point}:1:kill")) == -signal.SIGKILL, lake.story()
    lake.an_hour_passes()
    lake.finished()
    assert lake.wrong() == []


@pytest.mark.req("P-7")
def test_a_zombie_changes_nothing(lake: Lake) -> None:
    """Frozen while writing, beyond its lease. Another process has extracted, and was accepted, when it resumes."""
    zombie = lake.hire("zombie", gated=True)
    lake.until("half")
    still(zombie, lake.url)
    lake.an_hour_passes()
    lake.finished()
    before = {key: lake.current(key) for key in lake.keys}
    assert all(before.values())
    lake.gate.touch()
    os.kill(zombie, signal.SIGCONT)
    assert lake.zygote.wait(zombie) == 0, lake.story()
    assert {key: lake.current(key) for key in lake.keys} == before
    assert lake.wrong() == []
    assert lake.states()["late"] == 2, "both of its runs were judged, and moved nothing"
