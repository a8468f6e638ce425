"""Workers notice a step of the ledger's clock: each step moves what is stored once, and a slow heartbeat is not a step."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from redrive.ledger import Ledger, NewJob
from redrive.ledger.setback import set_back
from redrive.worker.hand import Hand
from redrive.worker.upkeep import Upkeep
from tests.conformance.ledger.world import pass_time, session

from .world import submit

HOUR, DAY = 3600, 86400
LEASE = 7.0


class Time:
    """The monotonic clock of the workers, and the ledger's clock as heartbeats report it."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.wait = 0.0
        """Seconds for which the next heartbeat waits before it reads the ledger's clock."""
        self.set_by = 0.0
        began, beat = ledger.now(), ledger.beat

        def report(name: str, info: Any = None, /) -> datetime:
            beat(name, info)
            self.seconds, self.wait = self.seconds + self.wait, 0.0
            return began + timedelta(seconds=self.seconds + self.set_by)

        monkeypatch.setattr(ledger, "beat", report)
        monkeypatch.setattr("redrive.worker.upkeep.monotonic", lambda: self.seconds)
        monkeypatch.setattr("redrive.worker.timers.monotonic", lambda: self.seconds)


def upkeep(ledger: Ledger, name: str) -> Upkeep:
    return Upkeep(
        ledger, name, Hand(), lease=LEASE, keep=DAY, info=lambda: {"lease": LEASE}, lost=lambda leases: None,
        reaped=lambda: None, seen=lambda parked: None,
    )  # fmt: skip


def ends(ledger: Ledger, job_id: int) -> datetime:
    job = ledger.get(job_id)
    assert job is not None
    assert job.lease_until is not None
    return job.lease_until


@pytest.mark.req("L-9")
def test_a_stalled_heartbeat_shortens_no_lease(shared: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(shared, monkeypatch)
    worker = upkeep(shared, "stalled")
    worker.run()
    (job,) = submit(shared, "mail", 1)
    shared.claim({"mail": 1}, worker="another", lease=60)
    until = ends(shared, job)
    time.seconds, time.wait = 2.0, 5.0
    worker.run()
    for time.seconds in (9.0, 11.0, 13.0):
        worker.run()
    assert ends(shared, job) == until


@pytest.mark.req("L-9")
def test_three_workers_apply_a_step_once(shared: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(shared, monkeypatch)
    workers = [upkeep(shared, name) for name in ("a", "b", "c")]
    for worker in workers:
        worker.run()
    (retry,) = shared.submit_many([NewJob("mail", "retry", delay=DAY)])
    with session(shared) as held:
        held.raw.execute("UPDATE redrive_job SET attempts = 1, reason = 'transient'")
    pass_time(shared, -HOUR)  # what is stored is an hour ahead of the clock now
    time.set_by = -HOUR
    for time.seconds in (2.0, 4.0, 6.0, 8.0, 10.0, 12.0):
        for worker in workers:
            worker.run()
    job = shared.get(retry.id)
    assert job is not None
    assert (job.due_at - shared.now()).total_seconds() == pytest.approx(DAY, abs=60)


@pytest.mark.req("L-9")
def test_a_lease_by_the_new_clock_is_not_shortened(shared: Ledger) -> None:
    (job,) = submit(shared, "mail", 1, due=shared.now() - timedelta(hours=1))
    shared.beat("holder", {"lease": LEASE})
    pass_time(shared, -5)
    shared.claim({"mail": 1}, worker="holder", lease=LEASE)
    until = ends(shared, job)
    with session(shared) as held:
        set_back(held)
    assert ends(shared, job) == until
