"""An outage is not poison (L-7): a job type is parked, probed and released. No attempt is charged, and poison still ends."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Hashable
from functools import partial
from time import monotonic
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from redrive import RetryPolicy
from redrive.core.clock import SYSTEM
from redrive.core.outage import End, Parking
from redrive.errors import LedgerUnavailable
from redrive.ledger import Lease, Ledger, NewJob, open_ledger
from redrive.ledger.db.tables import job as job_table
from redrive.ledger.jobs import lease_recovery, parking
from redrive.worker.parking import ParkedTypes
from redrive.worker.worker import Worker

from .world import EXECUTIONS, FAST, kind, record_log, submit, until, wait_for_jobs

QUICK = Parking(first=0.2, longest=0.4)
EAGER = Parking(first=0.01, longest=0.02, uncharged=3)
SLOW = RetryPolicy(max_attempts=3, backoff_base=60.0, backoff_max=60.0, jitter=0.0)
STATUSES = (404, 401, 422, 410, 403)
BOUND = FAST.max_attempts + EAGER.uncharged


class Service:
    """A service that is down or up, and never accepts some of the orders."""

    def __init__(self) -> None:
        self.up = threading.Event()
        self.calls: Counter[str] = Counter()

    def __call__(self, lease: Lease) -> None:
        self.calls[lease.key] += 1
        if lease.key == "shop:ann:0:mail:v1":
            raise RuntimeError("this order is broken")
        if not self.up.is_set():
            raise ConnectionError(f"no answer for {lease.key}")


class Poison:
    """A function that always fails for some of the jobs, with the same error."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls: Counter[str] = Counter()

    def __call__(self, lease: Lease) -> None:
        self.calls[lease.key] += 1
        if "bad" in lease.key:
            raise self.error


@pytest.mark.req("L-7")
def test_an_outage_parks_the_job_type_and_its_end_releases_it(ledger: Ledger) -> None:
    service = Service()
    ids = submit(ledger, "mail", 40)
    with record_log() as records, Worker(ledger, [kind("mail", service)], parking=QUICK) as worker:
        until(lambda: "mail" in worker.status.parked)
        assert "ConnectionError: no answer for" in worker.status.parked["mail"]
        tally = ledger.counts()["mail"]
        assert (tally.dead, tally.ready + tally.leased) == (0, 40)
        until(lambda: sum(record.kind == "again" for record in records) > 3, "it is probed")
        calls = service.calls.total()
        service.up.set()
        jobs = wait_for_jobs(ledger, *ids)
        until(lambda: not worker.status.parked)
    assert calls < 40 + 20, "the outage was met by few"
    assert {job.shown for job in jobs[1:]} == {"done"}
    assert {job.attempts for job in jobs[1:]} == {1}, "no failure was charged"
    assert (jobs[0].shown, jobs[0].reason, jobs[0].attempts) == ("dlq", "attempts", 3), "poison ends all the same"
    assert [record.kind for record in records if "parked" in record.kind] == ["parked", "unparked"]
    assert [entry.action for entry in ledger.audit()] == ["kind.park", "kind.unpark"]


@pytest.mark.req("L-7")
def test_an_outage_as_long_as_an_hour_of_probes_costs_no_job_an_attempt(ledger: Ledger) -> None:
    """The 16 probes of an hour, 500 times faster. One job is the probe each time, because of its priority."""
    service = Service()
    quick = Parking(first=0.01, longest=0.6)
    policy = RetryPolicy(max_attempts=3, backoff_base=0.05, backoff_max=0.05, jitter=0.0)
    ids = [
        job.id
        for job in ledger.submit_many(
            [NewJob("mail", f"shop:ann:{n}:mail:v1", priority=-2 if n == 1 else 0) for n in range(1, 31)]
        )
    ]
    with Worker(ledger, [kind("mail", service, policy=policy)], parking=quick, threads=30) as worker:
        until(lambda: "mail" in worker.status.parked)
        until(lambda: service.calls.total() >= 30 + 16, service.calls)
        service.up.set()
        jobs = wait_for_jobs(ledger, *ids)
    assert {(job.shown, job.attempts) for job in jobs} == {("done", 1)}
    assert max(service.calls.values()) >= 8, "the same job was the probe most of the time"


@pytest.mark.req("L-7")
def test_all_workers_and_the_operator_see_a_parked_job_type(shared: Ledger, url: str) -> None:
    from redrive.ops.ledger import status

    service = Service()
    submit(shared, "mail", 30)
    with open_ledger(url) as theirs, Worker(shared, [kind("mail", service)], parking=Parking(first=60)) as one:
        until(lambda: "mail" in one.status.parked)
        with Worker(theirs, [kind("mail", service)]) as other:
            until(lambda: "mail" in other.status.parked)
            assert "ConnectionError" in status(theirs).parked["mail"]


@pytest.mark.req("L-7")
def test_a_worker_refunds_attempts_charged_before_another_detected_the_outage(ledger: Ledger) -> None:
    """Five failures are too few for this worker. Then another worker parks the job type."""
    ids = submit(ledger, "mail", 6)
    with Worker(ledger, [kind("mail", Service(), policy=SLOW)], parking=Parking(first=60)) as worker:
        until(lambda: all(ledger.attempts(one) for one in ids))
        with ledger.connections.write.use() as session:
            parking.park(session, "mail", signature="ConnectionError", reason="of another worker", seconds=60)
        until(lambda: "mail" in worker.status.parked)
        until(lambda: [job.attempts for one in ids if (job := ledger.get(one))] == [1, 0, 0, 0, 0, 0])
    assert [attempt.reason for one in ids for attempt in ledger.attempts(one)] == ["failed"] + ["parked"] * 5


@pytest.mark.req("L-7")
def test_attempts_are_refunded_later_if_the_first_write_fails(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = submit(ledger, "mail", 6)
    give_back, failures = lease_recovery.refund_attempts, ["database is locked"]

    def fail_once(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise LedgerUnavailable(failures.pop())
        return give_back(*arguments, **options)

    monkeypatch.setattr(lease_recovery, "refund_attempts", fail_once)
    with Worker(ledger, [kind("mail", Service(), policy=SLOW)], parking=Parking(first=60)):
        until(lambda: all(ledger.attempts(one) for one in ids))
        with ledger.connections.write.use() as session:
            parking.park(session, "mail", signature="ConnectionError", reason="of another worker", seconds=60)
        until(lambda: [job.attempts for one in ids if (job := ledger.get(one))] == [1, 0, 0, 0, 0, 0])
    assert failures == []


@pytest.mark.req("L-7")
def test_attempts_of_locked_jobs_are_refunded_when_they_are_unlocked(postgres_ledger: str) -> None:
    with open_ledger(postgres_ledger) as ledger, open_ledger(postgres_ledger) as other:
        ids = submit(ledger, "mail", 6)
        with Worker(ledger, [kind("mail", Service(), policy=SLOW)], parking=Parking(first=60)):
            until(lambda: all(ledger.attempts(one) for one in ids))
            with other.begin() as connection:
                connection.execute(select(job_table.c.id).where(job_table.c.id == ids[1]).with_for_update())
                with ledger.connections.write.use() as session:
                    parking.park(session, "mail", signature="ConnectionError", reason="of another worker", seconds=60)
                until(lambda: [job.attempts for one in ids if (job := ledger.get(one))] == [1, 1, 0, 0, 0, 0])
            until(lambda: [job.attempts for one in ids if (job := ledger.get(one))] == [1, 0, 0, 0, 0, 0])


@pytest.mark.req("L-7")
def test_attempts_of_more_jobs_than_a_statement_has_parameters_are_refunded(ledger: Ledger) -> None:
    (job_id,) = submit(ledger, "mail", 1)
    (lease,) = ledger.claim({"mail": 1}, worker="one")
    ledger.settle(lease.again(60.0, error="no response", reason="failed"))
    work = kind("mail", Service())
    parked_types = ParkedTypes(ledger, [work], Parking(least=700), now=SYSTEM.now)
    now = monotonic()
    # Postgres allows 65,535 parameters. The limit of SQLite depends on its build, so the test sets its own.
    count = 2_000 if ledger.connections.on_sqlite else 66_000
    ended_jobs: dict[Hashable, End] = {n: End(n, "evidence", "503", None, now, (1,)) for n in range(job_id, job_id + count)}
    parked_types._recent["mail"]._failed.update(ended_jobs)
    with ledger.connections.write.use() as session:
        if session.sqlite:
            session.raw.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
        parking.park(session, "mail", signature="503", reason="of another worker", seconds=60)
        parked = parking.parked_kinds(session)
    parked_types.refresh(parked)
    found = ledger.get(job_id)
    assert found is not None
    assert found.attempts == 0


@pytest.mark.req("L-7")
def test_parking_can_be_switched_off(ledger: Ledger) -> None:
    ids = submit(ledger, "mail", 20)
    with Worker(ledger, [kind("mail", Service())], parking=Parking.disabled()) as worker:
        jobs = wait_for_jobs(ledger, *ids)
    assert {job.reason for job in jobs} == {"attempts"}
    assert worker.status.parked == {}


@pytest.mark.req("L-7")
def test_a_few_failures_are_not_an_outage(ledger: Ledger) -> None:
    ids = submit(ledger, "mail", 9)
    with Worker(ledger, [kind("mail", Service())]):
        assert {job.reason for job in wait_for_jobs(ledger, *ids)} == {"attempts"}


@pytest.mark.req("L-7", "W-3")
def test_jobs_with_a_bug_become_dead_letters_and_never_park_their_type(ledger: Ledger) -> None:
    work = Poison(KeyError("total"))
    two = RetryPolicy(max_attempts=2, backoff_base=0.01, backoff_max=0.02, jitter=0.0)
    ids = [job.id for job in ledger.submit_many([NewJob("mail", f"shop:u{n}:bad:mail:v1") for n in range(12)])]
    with record_log() as records, Worker(ledger, [kind("mail", work, policy=two)], parking=QUICK):
        jobs = wait_for_jobs(ledger, *ids)
    assert {(job.shown, job.reason, job.attempts) for job in jobs} == {("dlq", "attempts", 2)}
    assert set(work.calls.values()) == {2}
    assert not [record for record in records if record.kind == "parked"]


@pytest.mark.req("L-7")
def test_five_permanent_statuses_are_five_causes_and_park_nothing(ledger: Ledger) -> None:
    def work(lease: Lease) -> None:
        request = httpx.Request("GET", f"https://api.example.org/{lease.key}")
        httpx.Response(STATUSES[lease.job_id % 5], request=request).raise_for_status()

    ids = [job.id for job in ledger.submit_many([NewJob("mail", f"shop:u{n}:x:mail:v1") for n in range(50)])]
    with record_log() as records, Worker(ledger, [kind("mail", work)], parking=QUICK):
        jobs = wait_for_jobs(ledger, *ids)
    assert {(job.reason, job.attempts) for job in jobs} == {("not_retryable", 1)}
    assert len({letter.signature for letter in ledger.dead_letters()}) == 5
    assert not [record for record in records if record.kind == "parked"]


@pytest.mark.req("L-7", "M-6")
@pytest.mark.parametrize("error", [ValueError("bug"), PermissionError("403"), ConnectionError("no answer")], ids=repr)
def test_poison_among_good_jobs_parks_nothing_and_ends(ledger: Ledger, error: Exception) -> None:
    """Also for transient poison: jobs that succeed in between are evidence against an outage, even when only poison is left."""
    names = ["bad" if n % 26 == 0 else "good" for n in range(520)]
    new = [NewJob("mail", f"shop:ann:{n:03}{name}:mail:v1") for n, name in enumerate(names)]
    ids = [job.id for job in ledger.submit_many(new)]
    work = Poison(error)
    with record_log() as records, Worker(ledger, [kind("mail", work)], parking=QUICK):
        jobs = wait_for_jobs(ledger, *ids)
    assert not [record for record in records if record.kind == "parked"]
    assert {job.shown for job in jobs if "good" in job.key} == {"done"}
    assert {job.shown for job in jobs if "bad" in job.key} == {"dlq"}
    assert max(work.calls.values()) == (1 if isinstance(error, PermissionError) else FAST.max_attempts)


@pytest.mark.req("L-7")
def test_transient_poison_before_all_good_jobs_parks_the_type_once_and_ends(ledger: Ledger) -> None:
    """No job has succeeded yet, so it looks like an outage until a probe succeeds."""
    new = [NewJob("mail", f"shop:ann:bad{n}:mail:v1") for n in range(20)]
    new += [NewJob("mail", f"shop:ann:good{n}:mail:v1") for n in range(200)]
    ids = [job.id for job in ledger.submit_many(new)]
    work = Poison(ConnectionError("no answer"))
    with record_log() as records, Worker(ledger, [kind("mail", work)], parking=QUICK):
        jobs = wait_for_jobs(ledger, *ids)
    assert {job.shown for job in jobs if "good" in job.key} == {"done"}
    assert {job.shown for job in jobs if "bad" in job.key} == {"dlq"}
    assert [record.kind for record in records if "parked" in record.kind] == ["parked", "unparked"]
    assert max(work.calls.values()) <= FAST.max_attempts + 2


@pytest.mark.req("L-7")
def test_one_customers_failures_do_not_park_the_type_for_others(ledger: Ledger) -> None:
    work = Poison(ConnectionError("no answer"))
    first = ledger.submit_many([NewJob("mail", "shop:bob:good:mail:v1")])
    with record_log() as records, Worker(ledger, [kind("mail", work)], parking=QUICK):
        wait_for_jobs(ledger, first[0].id)
        theirs = ledger.submit_many([NewJob("mail", f"shop:ann:bad{n}:mail:v1") for n in range(40)])
        jobs = wait_for_jobs(ledger, *(job.id for job in theirs))
    assert {(job.reason, job.attempts) for job in jobs} == {("attempts", FAST.max_attempts)}
    assert not [record for record in records if record.kind == "parked"]


@pytest.mark.req("L-7")
def test_in_an_endless_outage_every_job_ends_within_its_bound_across_workers(ledger: Ledger) -> None:
    """Each worker sees only a part of it, because uncharged attempts are counted in the ledger."""
    work = Poison(ConnectionError("no answer"))
    ids = [job.id for job in ledger.submit_many([NewJob("mail", f"shop:ann:bad{n}:mail:v1") for n in range(12)])]
    while any((job := ledger.get(one)) is not None and job.state != "dead" for one in ids):
        enough = work.calls.total() + 15
        with Worker(ledger, [kind("mail", work)], parking=EAGER):
            until(partial(_called, ledger, work, enough), work.calls)
        assert max(work.calls.values()) <= BOUND
    assert {job.reason for job in wait_for_jobs(ledger, *ids)} == {"attempts"}
    assert work.calls.total() > 12 * FAST.max_attempts, "some attempts were not charged"
    for one in ids:
        reasons = Counter(attempt.reason for attempt in ledger.attempts(one))
        assert reasons["parked"] <= EAGER.uncharged


def _called(ledger: Ledger, work: Poison, enough: int) -> bool:
    return work.calls.total() >= enough or not ledger.counts()["mail"].ready


@pytest.mark.req("L-7")
def test_the_bound_holds_if_the_type_is_parked_repeatedly(ledger: Ledger) -> None:
    """A good job releases the type each time. The others always fail with a transient error."""
    work = Poison(ConnectionError("no answer"))
    ids = [job.id for job in ledger.submit_many([NewJob("mail", f"shop:ann:bad{n}:mail:v1") for n in range(15)])]
    with record_log() as records, Worker(ledger, [kind("mail", work)], parking=EAGER) as worker:
        for round_ in range(3):
            until(lambda: "mail" in worker.status.parked or not ledger.counts()["mail"].ready)
            good = ledger.submit_many([NewJob("mail", f"shop:ann:good{round_}:mail:v1", priority=-2)])
            wait_for_jobs(ledger, good[0].id)
        jobs = wait_for_jobs(ledger, *ids)
    assert {job.reason for job in jobs} == {"attempts"}
    assert max(work.calls.values()) <= BOUND
    assert sum(record.kind == "unparked" for record in records) >= 1


@pytest.mark.req("L-7")
def test_a_probe_that_fails_for_its_own_reason_is_charged_and_does_not_lengthen_the_wait(ledger: Ledger) -> None:
    """The job with a bug has the highest priority, so it is the probe until it is dead."""
    new = [NewJob("mail", f"shop:u{n}:x:mail:v1") for n in range(12)]
    ledger.submit_many(new)
    poison = ledger.submit_many([NewJob("mail", "shop:bob:bad:mail:v1", priority=-2)])[0]
    with ledger.connections.write.use() as session:
        parking.park(session, "mail", signature="ConnectionError", reason="a test", seconds=0.3)
    probes: list[int] = []
    reasons: list[str] = []

    def work(lease: Lease) -> None:
        if "bad" not in lease.key:
            raise ConnectionError("no answer")
        with ledger.connections.read.use() as session:
            parked = parking.parked_kinds(session)["mail"]
        probes.append(parked.probes)
        reasons.append(parked.reason)
        raise KeyError("a bug")

    with record_log() as records, Worker(ledger, [kind("mail", work)], parking=Parking(first=0.3, longest=60)):
        (job,) = wait_for_jobs(ledger, poison.id)
    assert (job.reason, job.attempts) == ("attempts", 3)
    assert probes == [1, 1, 1], "each is the first probe again"
    last_probe = "; the last probe ended with KeyError: …"
    assert reasons == ["a test", f"a test{last_probe}", f"a test{last_probe}"], "operators see why"
    assert not [record for record in records if record.kind == "unparked"]


@pytest.mark.req("L-7")
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_probe_released_by_a_stopping_worker_is_followed_immediately(ledger: Ledger, execution: str) -> None:
    submit(ledger, "mail", 2)
    with ledger.connections.write.use() as session:
        parking.park(session, "mail", signature="ConnectionError", reason="a test", seconds=0)
    began, release = threading.Event(), threading.Event()

    def block(_lease: Lease) -> None:
        began.set()
        assert release.wait(60)

    async def sleep(_lease: Lease) -> None:
        began.set()
        await asyncio.sleep(60)

    run = sleep if execution == "async" else block
    try:
        with Worker(ledger, [kind("mail", run, execution)], parking=Parking(first=60, longest=600), drain=0.1):
            assert began.wait(60)
            with ledger.connections.read.use() as session:
                parked = parking.parked_kinds(session)["mail"]
            assert (parked.probes, parked.probe_at > ledger.now()) == (1, True), "the next probe waits for this one"
    finally:
        release.set()
    with ledger.connections.read.use() as session:
        parked = parking.parked_kinds(session)["mail"]
    assert (parked.probes, parked.probe_at <= ledger.now()) == (0, True)
