"""Workers detect a step of the ledger's clock: each step moves stored times once, and a slow heartbeat is not a step."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.jobs.clocks import correct_setback
from redrive.worker.capacity import InFlight
from redrive.worker.maintenance import Maintenance, MaintenanceEvents
from tests.conformance.ledger.world import pass_time, session

from .world import submit, until

HOUR, DAY = 3600, 86400
LEASE = 7.0


class Time:
    """The monotonic clock of the workers, and the ledger's clock as heartbeats report it."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.wait = 0.0
        """Seconds by which the next heartbeat delays its reading of the ledger's clock."""
        self.set_by = 0.0
        began, beat = ledger.now(), ledger.maintenance.heartbeat

        def report(name: str, info: Any = None, /) -> datetime:
            beat(name, info)
            self.seconds, self.wait = self.seconds + self.wait, 0.0
            return began + timedelta(seconds=self.seconds + self.set_by)

        monkeypatch.setattr(ledger.maintenance, "heartbeat", report)
        monkeypatch.setattr("redrive.worker.maintenance.monotonic", lambda: self.seconds)


def maintenance(ledger: Ledger, name: str) -> Maintenance:
    events = MaintenanceEvents(lambda: {"lease": LEASE}, *([lambda _: None] * 4))
    return Maintenance(ledger, InFlight(), events, name=name, lease_seconds=LEASE, retention_seconds=DAY)


def ends(ledger: Ledger, job_id: int) -> datetime:
    job = ledger.get(job_id)
    assert job is not None
    assert job.lease_until is not None
    return job.lease_until


def retried(ledger: Ledger, key: str = "retry", *, after: float) -> int:
    """A job that failed once, with this number of seconds until its next attempt."""
    ledger.submit(NewJob("mail", key))
    (lease,) = ledger.claim({"mail": 1}, worker="w")
    ledger.settle(lease.again(after, error="no response", reason="failed"))
    return lease.job_id


def due_in(ledger: Ledger, job_id: int) -> float:
    job = ledger.get(job_id)
    assert job is not None
    assert job.state == "ready"
    return (job.due_at - ledger.now()).total_seconds()


@pytest.mark.req("L-9")
def test_a_stalled_heartbeat_shortens_no_lease(shared: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(shared, monkeypatch)
    worker = maintenance(shared, "stalled")
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
    workers = [maintenance(shared, name) for name in ("a", "b", "c")]
    for worker in workers:
        worker.run()
    retry = retried(shared, after=DAY)
    pass_time(shared, -HOUR)  # stored times are an hour ahead of the clock now
    time.set_by = -HOUR
    for time.seconds in (2.0, 4.0, 6.0, 8.0, 10.0, 12.0):
        for worker in workers:
            worker.run()
    assert due_in(shared, retry) == pytest.approx(DAY, abs=60)


@pytest.mark.req("L-9")
def test_a_lease_by_the_new_clock_is_not_shortened(shared: Ledger) -> None:
    (job,) = submit(shared, "mail", 1, due=shared.now() - timedelta(hours=1))
    shared.maintenance.heartbeat("holder", {"lease": LEASE})
    pass_time(shared, -5)
    shared.claim({"mail": 1}, worker="holder", lease=LEASE)
    until = ends(shared, job)
    with session(shared) as held:
        correct_setback(held)
    assert ends(shared, job) == until


class Jump:
    """The ledger's clock jumps ahead by an hour, and is set back again.

    Only stored times can be moved here. To jump ahead, they move into the past; to set back, into the future again.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def ahead(self) -> None:
        pass_time(self._ledger, HOUR)
        self._ledger.maintenance.heartbeat("w", {"lease": LEASE})

    def back(self) -> float:
        pass_time(self._ledger, -HOUR)
        with session(self._ledger) as held:
            return correct_setback(held)


@pytest.fixture
def jump(shared: Ledger) -> Jump:
    shared.maintenance.heartbeat("w", {"lease": LEASE})
    return Jump(shared)


@pytest.mark.req("L-9")
@pytest.mark.parametrize("after", [30 * 60, 2 * HOUR])
def test_a_retry_from_before_a_jump_of_the_clock_keeps_its_backoff(shared: Ledger, jump: Jump, after: float) -> None:
    old = retried(shared, after=after + 120)
    pass_time(shared, 120)
    jump.ahead()
    assert jump.back() == pytest.approx(HOUR, abs=60)
    assert due_in(shared, old) == pytest.approx(after, abs=30)


@pytest.mark.req("L-9")
@pytest.mark.parametrize("after", [60.0, 30 * 60, 2 * HOUR])
def test_a_retry_written_during_a_jump_of_the_clock_waits_its_backoff(shared: Ledger, jump: Jump, after: float) -> None:
    jump.ahead()
    during = retried(shared, after=after)
    jump.back()
    assert due_in(shared, during) == pytest.approx(after, abs=30)


@pytest.mark.req("L-9")
def test_a_job_created_during_a_jump_of_the_clock_is_due_when_it_was_submitted(shared: Ledger, jump: Jump) -> None:
    jump.ahead()
    now, later = shared.submit_many([NewJob("mail", "now"), NewJob("mail", "at two", due=shared.now() + timedelta(hours=2))])
    jump.back()
    assert due_in(shared, now.id) <= 0
    assert due_in(shared, later.id) == pytest.approx(3 * HOUR, abs=60), "a time that was asked for stays"


@pytest.mark.req("L-9")
def test_a_job_released_during_a_jump_of_the_clock_is_due(shared: Ledger, jump: Jump) -> None:
    (job,) = submit(shared, "mail")
    jump.ahead()
    (lease,) = shared.claim({"mail": 1}, worker="w")
    shared.settle(lease.release())
    jump.back()
    assert due_in(shared, job) <= 0


@pytest.mark.req("L-9")
def test_a_lease_from_a_jump_of_the_clock_ends_in_time(shared: Ledger, jump: Jump) -> None:
    (job,) = submit(shared, "mail")
    jump.ahead()
    shared.claim({"mail": 1}, worker="w", lease=LEASE)
    jump.back()
    assert ends(shared, job) <= shared.now() + timedelta(seconds=LEASE + 1)


@pytest.mark.req("L-9")
def test_a_worker_that_starts_later_keeps_retries_of_jobs_from_a_jump(shared: Ledger, jump: Jump) -> None:
    """The job was created an hour in the future. Its retry was written by the clock as it is now."""
    jump.ahead()
    submit(shared, "mail")
    jump.back()
    (lease,) = shared.claim({"mail": 1}, worker="w")
    shared.settle(lease.again(600.0, error="no response", reason="failed"))
    with session(shared) as held:
        assert correct_setback(held) == 0.0
    assert due_in(shared, lease.job_id) == pytest.approx(600, abs=30)


@pytest.mark.req("L-9")
def test_a_worker_that_leaves_after_the_clock_was_set_back_hides_no_step(shared: Ledger, jump: Jump) -> None:
    jump.ahead()
    during = retried(shared, after=60.0)
    pass_time(shared, -HOUR)
    shared.maintenance.deregister_worker("w")
    with session(shared) as held:
        assert correct_setback(held) == pytest.approx(HOUR, abs=60)
    assert due_in(shared, during) == pytest.approx(60, abs=30)


@pytest.mark.req("L-9")
def test_two_workers_that_notice_a_step_immediately_apply_it_once(postgres_ledger: str) -> None:
    with open_ledger(postgres_ledger) as first, open_ledger(postgres_ledger) as second, ThreadPoolExecutor(2) as threads:
        first.maintenance.heartbeat("w", {"lease": LEASE})
        second.maintenance.heartbeat("v", {"lease": LEASE})
        retry = retried(first, after=DAY)
        pass_time(first, -HOUR)

        def notice(ledger: Ledger) -> float:
            with session(ledger) as held:
                return correct_setback(held)

        with psycopg.connect(postgres_ledger) as holder, psycopg.connect(postgres_ledger, autocommit=True) as watcher:
            holder.execute("SELECT FROM redrive_worker FOR UPDATE")
            both = [threads.submit(notice, ledger) for ledger in (first, second)]
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            until(lambda: watcher.execute(waiting.encode()).fetchone() == (2,))
            holder.rollback()
        steps = sorted(each.result(60) for each in both)
        assert steps[0] == 0.0
        assert steps[1] == pytest.approx(HOUR, abs=60)
        assert due_in(first, retry) == pytest.approx(DAY, abs=60)


@pytest.mark.req("L-9")
@pytest.mark.parametrize("first", ["the reaper notices", "a heartbeat notices"])
def test_live_workers_renew_their_leases_before_others_take_them_after_a_jump(
    shared: Ledger, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    time = Time(shared, monkeypatch)
    time.set_by = -HOUR  # the first heartbeat is from before the jump
    worker = maintenance(shared, "reaper")
    worker.run()
    (job,) = submit(shared, "mail", 1)
    shared.claim({"mail": 1}, worker="holder", lease=LEASE)
    pass_time(shared, HOUR)
    time.set_by = 0.0
    for time.seconds in (1.1, 2.0, 10.0, 50.0) if first == "the reaper notices" else (2.0, 10.0, 50.0):
        worker.run()
    held = shared.get(job)
    assert held is not None
    assert (held.state, held.worker) == ("leased", "holder")
    for time.seconds in (70.0, 72.0, 74.0, 76.0, 78.0):
        worker.run()
    held = shared.get(job)
    assert held is not None
    assert held.state == "ready", "the holder is dead"
