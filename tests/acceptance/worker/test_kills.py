"""A worker that is killed, suspended or drained, with default settings: no job is lost, and only started attempts are charged."""

from __future__ import annotations

from typing import Any

import pytest

from . import isolated
from .shift import SLOTS, Shift, drain_worker, isolate, kill_workers, run_poison, suspend_worker


@pytest.mark.req("W-5", "L-3")
def test_a_new_worker_finishes_the_jobs_of_a_killed_one(shift: Shift) -> None:
    found = kill_workers(shift)
    assert (found.finished, found.lost) == (200, 0)
    assert found.twice <= 8, "no more than were running"
    assert found.seconds < 60


@pytest.mark.req("W-5")
def test_jobs_of_a_killed_machine_are_recovered_within_the_lease(shift: Shift) -> None:
    found = kill_workers(shift, "elsewhere", "lease=2", jobs=60, after=20)
    assert (found.finished, found.lost) == (60, 0)
    assert found.twice <= 8
    assert found.seconds < 60


@pytest.mark.req("L-3")
def test_a_poison_job_becomes_a_dead_letter_and_affects_no_other_job(shift: Shift) -> None:
    found = run_poison(shift)
    assert (found.finished, found.kills, found.reason) == (59, 3, "crashed_worker")
    assert found.charged <= SLOTS


@pytest.mark.req("Q-9")
@pytest.mark.parametrize(
    ("command", "reason", "attempts"),
    [(isolated.segfault, "crashed_process", 3), (isolated.fork_often, "attempts", 2), (isolated.eat_memory, "attempts", 2)],
)
def test_a_poison_job_in_a_process_costs_one_job_and_no_worker(shift: Shift, command: Any, reason: str, attempts: int) -> None:
    found = isolate(shift, command)
    assert found[:-1] == (59, reason, attempts, 1, 0, 0)


@pytest.mark.req("L-3", "L-4")
@pytest.mark.parametrize("where", ["", "elsewhere"])
def test_a_suspended_worker_has_not_crashed_and_its_late_settles_are_rejected(shift: Shift, where: str) -> None:
    found = suspend_worker(shift, *filter(None, [where]))
    assert (found.finished, found.crashes) == (200, 0)
    assert found.late >= 1
    assert found.twice <= 8


@pytest.mark.req("W-6", "L-3")
def test_draining_releases_jobs_that_do_not_end_in_time(shift: Shift) -> None:
    found = drain_worker(shift, "long=300")
    assert (found.finished, found.released, found.charged) == (0, 16, 0)
    assert found.seconds < 60


@pytest.mark.req("W-6")
def test_draining_waits_for_jobs_that_end_in_time(shift: Shift) -> None:
    found = drain_worker(shift, drain=120)
    assert (found.finished, found.released) == (16, 0)
