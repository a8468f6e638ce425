"""Progress and checkpoints of jobs, through the whole worker, on each database."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from redrive import current
from redrive.errors import LeaseLost
from redrive.ledger import Lease, Ledger, NewJob
from redrive.ledger.store.steps import StoredProgress, progress_of
from redrive.worker.steps import JobSteps
from redrive.worker.worker import Worker

from .world import kind, submit, until, wait_for_jobs

pytestmark = pytest.mark.req("Q-10")


def progress(ledger: Ledger, job_id: int) -> StoredProgress | None:
    with ledger.reading() as connection:
        return progress_of(connection, job_id)


def test_progress_is_shown_while_the_job_runs(ledger: Ledger) -> None:
    may_end = threading.Event()

    def work(lease: Lease) -> None:
        for page in range(1, 1001):
            current().progress(page / 2000, f"page {page} of 2000, token=hunter2")
        may_end.wait(60)

    (job_id,) = submit(ledger, "pages")
    with Worker(ledger, [kind("pages", work)]):
        until(lambda: progress(ledger, job_id) is not None)
        until(lambda: (row := progress(ledger, job_id)) is not None and row.part == 0.5)
        may_end.set()
        wait_for_jobs(ledger, job_id)
    row = progress(ledger, job_id)
    assert row is not None
    assert row.note is not None
    assert row.note.startswith("page 1000 of 2000")
    assert "hunter2" not in row.note
    assert ledger.prune(0) == 1
    assert progress(ledger, job_id) is None


@pytest.mark.parametrize("execution", ["thread", "async"])
def test_the_next_attempt_gets_the_checkpoint(ledger: Ledger, execution: str) -> None:
    seen: list[Any] = []

    def work(lease: Lease) -> None:
        start = current().last_checkpoint({"page": 0})
        seen.append(start)
        current().checkpoint({"page": start["page"] + 10})
        if lease.attempt < 3:
            raise ConnectionError("no answer")
        seen.append(current().last_checkpoint())

    async def awork(lease: Lease) -> None:
        start = await current().alast_checkpoint({"page": 0})
        seen.append(start)
        await current().acheckpoint({"page": start["page"] + 10})
        if lease.attempt < 3:
            raise ConnectionError("no answer")
        seen.append(await current().alast_checkpoint())

    run = awork if execution == "async" else work
    with Worker(ledger, [kind("pages", run, execution)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "pages"))
    assert job.state == "done"
    assert seen == [{"page": 0}, {"page": 10}, {"page": 20}, {"page": 30}]


def test_a_replay_gets_the_checkpoint(ledger: Ledger) -> None:
    seen: list[Any] = []

    def work(lease: Lease) -> None:
        seen.append(current().last_checkpoint(0))
        current().checkpoint(7)
        if len(seen) <= 3:
            raise ConnectionError("no answer")

    with Worker(ledger, [kind("pages", work)]):
        wait_for_jobs(ledger, *submit(ledger, "pages"))
        (letter,) = ledger.dead_letters()
        replay = ledger.replay([letter.id], actor="ann", because="test")
        (job,) = wait_for_jobs(ledger, replay.done[letter.id])
    assert (job.state, seen) == ("done", [0, 7, 7, 7])


def test_invalid_values_are_rejected(ledger: Ledger) -> None:
    ledger.submit(NewJob("pages", "shop:ann:1:pages:v1"))
    (lease,) = ledger.claim({"pages": 1}, worker="one")
    job = JobSteps(ledger, lease, ledger.now).reports
    for part in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="progress must be from 0 to 1"):
            job.progress(part, None)
    for wrong in ("half", True):
        with pytest.raises(TypeError, match="progress must be a number from 0 to 1"):
            job.progress(wrong, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="checkpoint: the value cannot be stored: object cannot be stored as JSON"):
        job.checkpoint(object())
    ledger.settle(lease.done())
    with pytest.raises(LeaseLost, match="the checkpoint was not stored"):
        job.checkpoint(1)
    assert progress(ledger, lease.job_id) is None
