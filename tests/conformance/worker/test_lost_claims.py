"""A claim whose response is lost: its jobs never started, so nothing is charged to them. On Postgres, through a relay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from threading import Event, Semaphore
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import select, update

from redrive import RetryPolicy
from redrive.core.outage import Parking
from redrive.errors import LedgerUnavailable
from redrive.ledger import Lease, Ledger, NewJob, Settlement, Turn, open_ledger
from redrive.ledger.db.tables import job as job_table
from redrive.ledger.events import HandlerJob, IncomingEvent
from redrive.ledger.model import LEASED
from redrive.worker.arrivals import Arrival
from redrive.worker.dispatcher import Dispatcher
from redrive.worker.maintenance import Maintenance
from redrive.worker.worker import Worker
from tests.servers.relay import Relay

from .world import kind, submit, until, wait_for_jobs

ONCE = RetryPolicy(max_attempts=1)
CLAIM = b'{"mail"}'
"""A part of a claim's parameters: the requested job types."""
START = b"started_at IS NULL"
"""A part of the statement that starts claimed jobs."""


@pytest.fixture
def relay(postgres_ledger: str) -> Iterator[Relay]:
    """A relay before the server of the ledger."""
    server = urlsplit(postgres_ledger)
    assert server.port is not None
    with Relay(server.port, host=server.hostname or "127.0.0.1") as made:
        yield made


@pytest.fixture
def direct(postgres_ledger: str) -> Iterator[Ledger]:
    """The ledger, directly."""
    with open_ledger(postgres_ledger) as opened:
        yield opened
        assert opened.imbalance() == []


@pytest.fixture
def relayed_ledger(postgres_ledger: str, relay: Relay) -> Iterator[Ledger]:
    """The ledger, through the relay."""
    server = urlsplit(postgres_ledger)
    with open_ledger(server._replace(netloc=f"{server.username}@127.0.0.1:{relay.port}").geturl()) as opened:
        yield opened


@pytest.mark.req("L-3")
@pytest.mark.parametrize(("attempts", "needle"), [(1, CLAIM), (3, CLAIM), (1, START)])
def test_a_claim_whose_response_is_lost_is_not_an_attempt(
    direct: Ledger, relayed_ledger: Ledger, relay: Relay, attempts: int, needle: bytes
) -> None:
    ran: Counter[str] = Counter()
    ids = submit(direct, "mail", 3, max_attempts=attempts)
    work = kind("mail", lambda lease: ran.update([lease.key]), policy=RetryPolicy(max_attempts=attempts))
    relay.lose_response(needle)
    with Worker(relayed_ledger, [work]):
        assert relay.lost.wait(60)
        jobs = wait_for_jobs(direct, *ids)
    assert [(job.state, job.attempts, job.crashes) for job in jobs] == [("done", 1, 0)] * 3
    assert set(ran.values()) == {1}
    assert direct.dead_letters() == []
    assert [direct.attempts(job.id) for job in jobs] == [[], [], []]


@pytest.mark.req("L-3")
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_turn_that_settles_and_claims_is_lost(direct: Ledger, relayed_ledger: Ledger, relay: Relay, attempts: int) -> None:
    ran: Counter[str] = Counter()

    def work(lease: Lease) -> None:
        if not ran:
            relay.lose_response(CLAIM)  # of the turn that settles this one, and claims the next one
        ran[lease.key] += 1

    ids = submit(direct, "mail", 2, max_attempts=attempts)
    with Worker(relayed_ledger, [kind("mail", work, policy=RetryPolicy(max_attempts=attempts))], threads=1):
        jobs = wait_for_jobs(direct, *ids)
    assert relay.lost.is_set()
    assert [(job.state, job.attempts) for job in jobs] == [("done", 1)] * 2
    assert set(ran.values()) == {1}
    assert direct.dead_letters() == []


@pytest.mark.req("L-3")
def test_a_turn_that_settles_and_starts_is_lost(direct: Ledger, relayed_ledger: Ledger, relay: Relay) -> None:
    """Short jobs wait in the worker, so that one write settles some of them and starts others."""
    ran: Counter[str] = Counter()
    ids = submit(direct, "mail", 300, max_attempts=1)

    def work(lease: Lease) -> None:
        ran[lease.key] += 1
        if len(ran) == 150:
            relay.lose_response(str(sorted(ids)[200]).encode())  # the statement is prepared, so only its parameters are sent

    with Worker(relayed_ledger, [kind("mail", work, policy=ONCE)], threads=2):
        jobs = wait_for_jobs(direct, *ids)
    assert relay.lost.is_set()
    assert {(job.state, job.attempts, job.crashes) for job in jobs} == {("done", 1, 0)}
    assert set(ran.values()) == {1}
    assert direct.dead_letters() == []


@pytest.mark.req("L-3")
def test_a_limited_claim_whose_commit_is_lost_is_not_an_attempt(direct: Ledger, relayed_ledger: Ledger, relay: Relay) -> None:
    ran: Counter[str] = Counter()
    ids = submit(direct, "mail", 3, max_attempts=1)
    work = kind("mail", lambda lease: ran.update([lease.key]), policy=ONCE, concurrency=2)
    relay.lose_response(b"COMMIT", nth=3)
    with Worker(relayed_ledger, [work]):
        jobs = wait_for_jobs(direct, *ids)
    assert [(job.state, job.attempts) for job in jobs] == [("done", 1)] * 3
    assert set(ran.values()) == {1}


@pytest.mark.req("L-3")
def test_a_stopping_worker_releases_undelivered_jobs(direct: Ledger, relayed_ledger: Ledger, relay: Relay) -> None:
    ids = submit(direct, "mail", 1, max_attempts=3)
    relay.lose_response(CLAIM)
    worker = Worker(relayed_ledger, [kind("mail", lambda lease: None)])
    worker.start()
    assert relay.lost.wait(60)
    worker.close()
    job = direct.get(ids[0])
    assert job is not None
    assert job.state == "done" or (job.state, job.attempts) == ("ready", 0)


@pytest.mark.req("L-3")
def test_a_last_attempt_that_was_only_claimed_survives_its_worker(shared: Ledger) -> None:
    """As after a SIGKILL between claim and start: the lease expires without a start."""
    (job,) = shared.submit_many([NewJob("mail", "k", max_attempts=1)])
    turn = shared.turn((), {"mail": 1}, worker="gone", lease=0.000001, start_last=False)
    assert [(lease.started, lease.attempt) for lease in turn.leases] == [(False, 0)]
    until(lambda: shared.reap() == [job.id])
    found = shared.get(job.id)
    assert found is not None
    assert (found.state, found.attempts, found.crashes, found.priority) == ("ready", 0, 0, 0)
    (lease,) = shared.start(shared.turn((), {"mail": 1}, worker="next", start_last=False).leases)
    assert (lease.started, lease.attempt) == (True, 1)
    shared.settle(lease.done())


@pytest.mark.req("L-3")
@pytest.mark.parametrize("attempts", [1, 2])
def test_last_attempts_are_not_started_while_they_wait_for_a_thread(shared: Ledger, attempts: int) -> None:
    """Short jobs are claimed in batches. If the worker is killed, last attempts that did not start are not used up."""
    ran: Counter[str] = Counter()
    gate, blocked = Event(), Semaphore(0)

    def work(lease: Lease) -> None:
        if lease.attempt < attempts:
            raise ConnectionError("no response")
        ran[lease.key] += 1
        if len(ran) > 150:
            blocked.release()
            assert gate.wait(60)

    policy = RetryPolicy(max_attempts=attempts, backoff_base=0.01, backoff_max=0.02, jitter=0.0)
    ids = submit(shared, "mail", 400, max_attempts=attempts)
    running = (job_table.c.state == LEASED, job_table.c.started_at.is_not(None), job_table.c.attempts == attempts)
    query = select(job_table.c.key).where(*running)
    with Worker(shared, [kind("mail", work, policy=policy)], threads=2, parking=Parking.disabled()):
        assert blocked.acquire(timeout=60)
        assert blocked.acquire(timeout=60)
        with shared.reading() as connection:
            started = set(connection.execute(query).scalars())
            begun = set(ran)
        gate.set()
        jobs = wait_for_jobs(shared, *ids)
    assert started <= begun
    assert {(job.state, job.attempts) for job in jobs} == {("done", attempts)}
    assert set(ran.values()) == {1}


def test_last_attempts_start_with_the_write_that_settles_others(shared: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[tuple[int, int]] = []
    turn = Ledger.turn

    def count(ledger: Ledger, settlements: Sequence[Settlement], *rest: Any, **more: Any) -> Turn:
        turns.append((len(settlements), len(more.get("starts", ()))))
        return turn(ledger, settlements, *rest, **more)

    monkeypatch.setattr(Ledger, "turn", count)
    monkeypatch.setattr(Ledger, "start", lambda ledger, leases: pytest.fail(f"a write of its own for {leases}"))
    ids = submit(shared, "mail", 400, max_attempts=1)
    with Worker(shared, [kind("mail", lambda lease: None, policy=ONCE)], threads=4):
        jobs = wait_for_jobs(shared, *ids)
    assert {(job.state, job.attempts) for job in jobs} == {("done", 1)}
    assert max(starts for _, starts in turns) <= 4, "one for each thread"
    assert any(settled and starts for settled, starts in turns)


@pytest.mark.req("L-3")
def test_events_that_were_stored_run_although_a_late_settlement_cannot_be_recorded(
    shared: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs of events are leased in the turn that stores them. Other writes of that turn may fail."""
    ran: Counter[str] = Counter()
    failed: list[str] = []
    part = HandlerJob("book", "event:shop:e1:book:v1", 3)
    event = IncomingEvent("shop", "e1", "paid", b"{}", None, None, None, None, None, None, 1, (part,), ({}, {}))

    def lose_the_lease(lease: Lease) -> None:
        ran[lease.key] += 1
        if ran[lease.key] > 1:
            return
        with shared.begin() as connection:
            taken = update(job_table).where(job_table.c.id == lease.job_id)
            connection.execute(taken.values(lease_until=job_table.c.created_at))
        shared.reap()

    def bring_event(dispatcher: Dispatcher) -> None:
        collect(dispatcher)
        if dispatcher._writer.settlements and not brought:
            brought.append(dispatcher.arrivals.put([event]))

    def fail_once(leases: list[Lease]) -> None:
        if not failed:
            failed.append("alive")
            raise LedgerUnavailable("the ledger is away")

    brought: list[Arrival] = []
    collect = Dispatcher._collect_results
    monkeypatch.setattr(Dispatcher, "_collect_results", bring_event)
    monkeypatch.setattr(Maintenance, "revoke_crashes", lambda maintenance, leases: fail_once(leases))
    kinds = [kind("mail", lose_the_lease), kind("book", lambda lease: ran.update([lease.key]))]
    (mail,) = submit(shared, "mail", 1, max_attempts=3)
    with Worker(shared, kinds, threads=2):
        until(lambda: ran[part.key] == 1, ran)
        until(lambda: shared.counts()["book"].done == 1, shared.counts)
        wait_for_jobs(shared, mail)
    assert failed == ["alive"]
    assert [(job.attempts, job.crashes) for job in shared.jobs("done") if job.kind == "book"] == [(1, 0)]
