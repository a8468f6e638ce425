"""A worker prunes in batches: the next one soon if more rows are left, otherwise once a minute."""

from __future__ import annotations

import pytest

from redrive.ledger import Ledger, NewJob
from redrive.worker import maintenance as module
from redrive.worker.maintenance import PRUNE_SECONDS, PRUNE_SOON_SECONDS
from tests.conformance.ledger.world import pass_time

from .test_clock_steps import DAY, Time, maintenance

BATCH = 5


def finish(ledger: Ledger, count: int, *, keep: float | None = None) -> None:
    ledger.submit_many([NewJob("mail", f"{keep}-{number}", keep=keep) for number in range(count)])
    ledger.settle([lease.done() for lease in ledger.claim({"mail": count}, worker="w")])


def count_pruned(ledger: Ledger) -> int:
    return ledger.counts()["mail"].pruned


@pytest.mark.req("L-10")
def test_a_worker_prunes_batch_after_batch_until_no_job_is_left(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRUNE_BATCH", BATCH)
    time = Time(ledger, monkeypatch)
    finish(ledger, 2 * BATCH + 1)
    pass_time(ledger, 2 * DAY)
    worker = maintenance(ledger, "w")
    seen = []
    for time.seconds in (
        PRUNE_SECONDS - 1,
        PRUNE_SECONDS,
        PRUNE_SECONDS + PRUNE_SOON_SECONDS / 2,
        PRUNE_SECONDS + PRUNE_SOON_SECONDS,
        PRUNE_SECONDS + 2 * PRUNE_SOON_SECONDS,
    ):
        worker.run()
        seen.append(count_pruned(ledger))
    assert seen == [0, BATCH, BATCH, 2 * BATCH, 2 * BATCH + 1]
    finish(ledger, 1, keep=9.0)
    pass_time(ledger, 2 * DAY)
    for later in (5 * PRUNE_SOON_SECONDS, PRUNE_SECONDS):  # the last batch was not full
        time.seconds = PRUNE_SECONDS + 2 * PRUNE_SOON_SECONDS + later
        worker.run()
        seen.append(count_pruned(ledger))
    assert seen[-2:] == [2 * BATCH + 1, 2 * BATCH + 2]


@pytest.mark.req("L-10")
def test_expired_keys_are_deleted_batch_after_batch_too(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(ledger, 2 * BATCH, keep=3.0 * DAY)
    pass_time(ledger, 2 * DAY)
    assert ledger.prune(DAY) == 2 * BATCH
    pass_time(ledger, 2 * DAY)  # nothing is left to prune, and the keys have expired
    monkeypatch.setattr(module, "PRUNE_BATCH", BATCH)
    time = Time(ledger, monkeypatch)
    worker = maintenance(ledger, "w")
    left = []
    for time.seconds in (PRUNE_SECONDS, PRUNE_SECONDS + PRUNE_SOON_SECONDS):
        worker.run()
        left.append(sum(ledger.find("mail", f"{3.0 * DAY}-{number}") is not None for number in range(2 * BATCH)))
    assert left == [BATCH, 0]
