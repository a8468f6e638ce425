"""The ledger's clock is set back, or differs between machines: jobs continue, and live workers keep their leases."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

import pytest

from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.jobs import limits
from redrive.ledger.jobs.clocks import HEARTBEAT_WAIT_SECONDS, Clocks, correct_setback
from redrive.ledger.jobs.limits import Limit
from redrive.ledger.model import Lease, new_token
from redrive.ledger.store.protocol import ClaimOptions
from redrive.worker.worker import Worker
from tests.conformance.ledger.world import pass_time, session

from .world import kind, submit, until, wait_for_jobs

HOUR, MINUTE = 3600, 60


def nothing(_lease: Lease) -> None: ...


def rated(ledger: Ledger, most: int = 5) -> list[Lease]:
    demand = ClaimOptions({"mail": most}, "w", 60.0, most, token=new_token())
    with session(ledger) as held:
        return limits.claim(held, ledger.connections.store, demand, {"mail": Limit(rate=1.0)}).leases


@pytest.mark.req("L-9")
def test_a_rate_continues_after_the_clock_is_set_back(shared: Ledger) -> None:
    submit(shared, "mail", 5, due=datetime(2020, 1, 1, tzinfo=timezone.utc))
    assert len(rated(shared)) == 1
    assert rated(shared) == []
    pass_time(shared, -MINUTE)  # stored times are a minute ahead of the clock now
    assert len(rated(shared)) == 1
    assert rated(shared) == [], "the rate holds, by the new clock"


@pytest.mark.req("L-9")
def test_jobs_that_were_due_are_done_after_the_clock_is_set_back(shared: Ledger, url: str) -> None:
    shared.maintenance.heartbeat("another")
    ids = submit(shared, "mail", 20)
    (later,) = shared.submit_many([NewJob("mail", "later", delay=2 * HOUR)])
    pass_time(shared, -HOUR)
    assert shared.claim({"mail": 100}, worker="w") == []
    with open_ledger(url) as theirs, Worker(theirs, [kind("mail", nothing)]):
        wait_for_jobs(shared, *ids)
    job = shared.get(later.id)
    assert job is not None
    assert job.state == "ready"
    assert job.due_at > shared.now() + timedelta(seconds=HOUR)


@pytest.mark.req("L-9")
def test_leases_of_a_dead_worker_end_in_time_after_the_clock_is_set_back(shared: Ledger) -> None:
    (job,) = submit(shared, "mail", 1)
    shared.claim({"mail": 1}, worker="gone", lease=5)
    shared.maintenance.heartbeat("gone")
    pass_time(shared, -HOUR)
    with session(shared) as held:
        assert correct_setback(held) == pytest.approx(HOUR, abs=60)
        assert correct_setback(held) == 0.0
    found = shared.get(job)
    assert found is not None
    assert found.lease_until is not None
    assert found.lease_until < shared.now() + timedelta(seconds=60)


@pytest.mark.req("L-9")
def test_a_running_worker_continues_after_its_clock_is_set_back(on_sqlite: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = threading.Event()
    real = time.time_ns
    monkeypatch.setattr("redrive.ledger.db.clock.time.time_ns", lambda: real() - (HOUR * 10**9 if moved.is_set() else 0))
    began, gate = threading.Event(), threading.Event()

    def first(lease: Lease) -> None:
        began.set()
        assert gate.wait(60)

    ids = submit(on_sqlite, "mail", 20)
    with Worker(on_sqlite, [kind("mail", first)], threads=1, lease=2):
        assert began.wait(60)
        moved.set()
        gate.set()
        wait_for_jobs(on_sqlite, *ids)


@contextmanager
def beating(ledger: Ledger, url: str, name: str, off: float) -> Iterator[None]:
    """A live worker on a machine whose clock is off by a number of seconds."""
    over = threading.Event()
    ledger.maintenance.heartbeat(name)

    def beat() -> None:
        with sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30) as other:
            while not over.wait(0.2):
                other.execute(
                    "UPDATE redrive_worker SET seen_at = ? WHERE name = ?", (time.time_ns() // 1000 + int(off * 1e6), name)
                )
                other.commit()
        other.close()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.req("L-9")
@pytest.mark.parametrize("off", [-HOUR, HOUR])
def test_a_worker_with_another_clock_takes_no_leases_of_live_workers(on_sqlite: Ledger, off: int) -> None:
    url = on_sqlite.connections.address.target
    (held,) = submit(on_sqlite, "mail", 1)
    (lease,) = on_sqlite.claim({"mail": 1}, worker="theirs", lease=MINUTE)
    with session(on_sqlite) as raw:
        raw.raw.execute("UPDATE redrive_job SET lease_until = lease_until + ?", (off * 1_000_000,))
    with beating(on_sqlite, f"sqlite:///{url}", "theirs", off):
        time.sleep(0.5)
        with Worker(on_sqlite, [kind("mail", nothing)]) as worker:
            until(lambda: worker.status.trouble is not None, worker.status)
            says = worker.status.trouble
            submit(on_sqlite, "mail", 3)
            time.sleep(HEARTBEAT_WAIT_SECONDS / 4)
            job = on_sqlite.get(held)
    assert says is not None
    assert (
        "clock: this machine's clock is 3600 s ahead of" if off < 0 else "clock: this machine's clock is 3600 s behind"
    ) in says
    assert job is not None
    assert (job.state, job.fence, job.worker) == ("leased", lease.fence, "theirs")


def standing(clocks: Clocks) -> tuple[bool, str | None]:
    return clocks.checked, clocks.problem


def test_an_old_heartbeat_is_a_dead_workers_and_one_that_moves_is_not() -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    old = now - timedelta(hours=1)
    clocks = Clocks(enabled=True)
    clocks.look({"a": old}, now, 0.0)
    assert standing(clocks) == (False, None)
    clocks.look({"a": old}, now, HEARTBEAT_WAIT_SECONDS)
    assert standing(clocks) == (True, None)
    clocks.doubt()
    clocks.look({"a": old}, now, 10.0)
    clocks.look({"a": old + timedelta(seconds=2)}, now + timedelta(seconds=2), 12.0)
    assert standing(clocks)[1] is not None
    clocks.look({"a": now}, now, 14.0)
    assert standing(clocks) == (True, None), "the clock was set right"
