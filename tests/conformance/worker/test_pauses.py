"""Pauses by hand: workers obey within a second, poll no more than before, and finish running work."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from redrive.core.outage import Parking
from redrive.ledger import Lease, Ledger, open_ledger
from redrive.ledger.db.job_tables import pause as pause_table
from redrive.ledger.jobs import parking, pauses
from redrive.ledger.jobs.pauses import Scope
from redrive.ledger.model import QUARANTINE
from redrive.ledger.reader import LedgerReader
from redrive.worker import maintenance
from redrive.worker.worker import Worker

from .world import Refreshes, kind, submit, until, wait_for_jobs

OBEY_SECONDS = 1.5
"""A second, and the delay of a slow machine."""
WHO: Any = {"actor": "ann", "because": "INC-42"}


def pause(ledger: Ledger, scope: Scope, name: str = "", *, seconds: float | None = None) -> None:
    end = None if seconds is None else ledger.now() + timedelta(seconds=seconds)
    with ledger.connections.write.use() as session:
        pauses.pause(session, scope, name, until=end, **WHO)


def resume(ledger: Ledger, scope: Scope, name: str = "") -> bool:
    with ledger.connections.write.use() as session:
        return pauses.resume(session, scope, name, **WHO)


class Counted:
    """Work that counts its runs by job type."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()

    def __call__(self, lease: Lease) -> None:
        self.runs[lease.kind] += 1


@pytest.mark.req("Q-4")
def test_a_paused_job_type_is_not_claimed_and_others_are(ledger: Ledger) -> None:
    work = Counted()
    pause(ledger, "job type", "mail")
    held, free = submit(ledger, "mail", 5), submit(ledger, "sync", 5)
    with Worker(ledger, [kind("mail", work), kind("sync", work)]):
        wait_for_jobs(ledger, *free)
        assert work.runs == {"sync": 5}
        assert ledger.counts()["mail"].ready == 5
        assert resume(ledger, "job type", "mail")
        wait_for_jobs(ledger, *held)
    assert work.runs == {"mail": 5, "sync": 5}


@pytest.mark.req("Q-4")
def test_a_pause_and_its_end_take_effect_within_a_second_in_all_workers(shared: Ledger, url: str) -> None:
    work = Counted()
    with open_ledger(url) as theirs, Worker(shared, [kind("mail", work)]), Worker(theirs, [kind("mail", work)]):
        wait_for_jobs(shared, *submit(shared, "mail", 1))
        pause(shared, "job type", "mail")
        time.sleep(OBEY_SECONDS)
        (held,) = [job.id for job in shared.submit_many([_job("mail", "late")])]
        time.sleep(0.5)
        assert work.runs["mail"] == 1
        resumed_at = time.monotonic()
        resume(shared, "job type", "mail")
        wait_for_jobs(shared, held)
        assert time.monotonic() - resumed_at < OBEY_SECONDS + 1


@pytest.mark.req("Q-4")
def test_a_paused_app_starts_nothing_and_keeps_its_workers_alive(ledger: Ledger) -> None:
    work = Counted()
    pause(ledger, "app")
    ids = submit(ledger, "mail", 3)
    with Worker(ledger, [kind("mail", work)], lease=1.0) as worker:
        until(lambda: bool(ledger.workers()))
        (first,) = ledger.workers()
        until(lambda: ledger.workers()[0].seen_at > first.seen_at, "heartbeats continue")
        assert worker.is_healthy
        assert not work.runs
        ids += [job.id for job in ledger.submit_many([_job("mail", "while-paused")])]
        resume(ledger, "app")
        wait_for_jobs(ledger, *ids)
    assert work.runs == {"mail": 4}


@pytest.mark.req("Q-4")
def test_running_jobs_finish_while_their_type_is_paused(ledger: Ledger, refreshes: Refreshes) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(lease: Lease) -> None:
        started.set()
        assert go_on.wait(30)

    (job_id,) = submit(ledger, "mail")
    with Worker(ledger, [kind("mail", slow)]):
        assert started.wait(30)
        pause(ledger, "job type", "mail")
        refreshes.wait()
        go_on.set()
        (job,) = wait_for_jobs(ledger, job_id)
    assert job.state == "done"


@pytest.mark.req("Q-4")
def test_an_expired_pause_has_no_effect_and_its_row_is_deleted(ledger: Ledger) -> None:
    work = Counted()
    pause(ledger, "job type", "mail", seconds=0.3)
    ids = submit(ledger, "mail", 2)
    with Worker(ledger, [kind("mail", work)]):
        wait_for_jobs(ledger, *ids)
        until(lambda: _rows(ledger) == 0, "the row is deleted")
    assert not resume(ledger, "job type", "mail")


@pytest.mark.req("Q-4")
def test_a_paused_backlog_causes_no_polling(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, refreshes: Refreshes) -> None:
    """Neither claims nor queries for the next job, however often the worker reads the pauses."""
    calls: Counter[str] = Counter()

    def counted(name: str, call: Any) -> Any:
        def wrapper(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return call(*args, **options)

        return wrapper

    pause(ledger, "job type", "mail")
    submit(ledger, "mail", 50)
    with Worker(ledger, [kind("mail", Counted())]):
        refreshes.wait(2)
        monkeypatch.setattr(Ledger, "turn", counted("turn", Ledger.turn))
        monkeypatch.setattr(LedgerReader, "next_due", counted("next_due", LedgerReader.next_due))
        refreshes.wait(15)
    assert calls == {}


def test_workers_read_pauses_once_in_a_second() -> None:
    assert maintenance.REFRESH_CONTROLS_SECONDS == 1.0


@pytest.mark.req("Q-4")
def test_a_type_paused_by_hand_is_not_probed_after_an_outage(ledger: Ledger, refreshes: Refreshes) -> None:
    work = Counted()
    with ledger.connections.write.use() as session:
        parking.park(session, "mail", signature="x", reason="down", seconds=0.0)
    pause(ledger, "job type", "mail")
    ids = submit(ledger, "mail", 2)
    with Worker(ledger, [kind("mail", work)], parking=Parking(first=0.1, longest=0.1)) as worker:
        refreshes.wait(5)
        assert not work.runs
        assert "mail" in worker.status.parked, "both are known, and distinct"
        resume(ledger, "job type", "mail")
        wait_for_jobs(ledger, *ids)
        until(lambda: not worker.status.parked, "the probe released it")


@pytest.mark.req("Q-4")
def test_an_operator_unparks_a_job_type_now(ledger: Ledger) -> None:
    work = Counted()
    with ledger.connections.write.use() as session:
        parking.park(session, "mail", signature="x", reason="down", seconds=3600.0)
    ids = submit(ledger, "mail", 2)
    with Worker(ledger, [kind("mail", work)]) as worker:
        until(lambda: "mail" in worker.status.parked)
        with ledger.connections.write.use() as session:
            assert parking.unpark(session, "mail", because="the CRM is back", actor="ann")
        wait_for_jobs(ledger, *ids)
    last = ledger.audit()[-1]
    assert (last.actor, last.action, last.because) == ("ann", "kind.unpark", "the CRM is back")


@pytest.mark.req("Q-4")
def test_quarantined_jobs_of_a_paused_type_stay_queued(ledger: Ledger, refreshes: Refreshes) -> None:
    work = Counted()
    pause(ledger, "job type", "mail")
    (job_id,) = submit(ledger, "mail", 1)
    with ledger.connections.write.use() as session:
        session.core.exec_driver_sql(f"UPDATE redrive_job SET priority = {QUARANTINE}")
    with Worker(ledger, [kind("mail", work)]):
        refreshes.wait(5)
        assert not work.runs
        resume(ledger, "job type", "mail")
        wait_for_jobs(ledger, job_id)


def _job(name: str, entity: str) -> Any:
    from redrive.ledger import NewJob

    return NewJob(name, f"shop:ann:{entity}:{name}:v1")


def _rows(ledger: Ledger) -> int:
    with ledger.reading() as connection:
        return connection.execute(select(func.count()).select_from(pause_table)).scalar_one()
