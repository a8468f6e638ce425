"""Limits over all workers: concurrency and rate."""

from __future__ import annotations

import threading
import time
from contextvars import copy_context
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.outage import Parking
from redrive.core.token_bucket import BURST_SECONDS, refill_tokens
from redrive.ledger import Lease, Ledger, open_ledger
from redrive.ledger.jobs import limits
from redrive.ledger.jobs.limits import Limit, claim
from redrive.ledger.store.protocol import ClaimOptions
from redrive.worker import claimer, dispatcher
from redrive.worker.status import WorkerOptions
from redrive.worker.worker import Worker

from .world import kind, submit, wait_for_jobs


class Crowd:
    """Counts concurrent jobs."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = self.most = 0
        self.starts: list[float] = []
        self._lock = threading.Lock()

    def __call__(self, lease: Lease) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.starts.append(time.monotonic())
        time.sleep(self.seconds)
        with self._lock:
            self.now -= 1


@pytest.mark.req("W-6")
def test_concurrency_of_a_job_type_is_limited(shared: Ledger, url: str) -> None:
    crowd = Crowd(0.02)
    ids = submit(shared, "mail", 40)
    with open_ledger(url) as theirs:
        limited = kind("mail", crowd, concurrency=3)
        with Worker(shared, [limited]), Worker(theirs, [limited]):
            wait_for_jobs(shared, *ids)
    assert crowd.most <= 3
    assert crowd.most >= 2, "there was room for more"


def test_a_free_slot_is_used_immediately(shared: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimer, "LIMIT_RETRY_SECONDS", 10.0)
    crowd = Crowd(0.005)
    ids = submit(shared, "mail", 30)
    with Worker(shared, [kind("mail", crowd, concurrency=1)]):
        wait_for_jobs(shared, *ids)
    gaps = sorted(later - earlier for earlier, later in zip(crowd.starts, crowd.starts[1:], strict=False))
    assert gaps[len(gaps) // 2] < 5, "nobody waited to look again"


@pytest.mark.req("W-6")
def test_the_rate_of_a_job_type_is_limited(shared: Ledger, url: str) -> None:
    crowd = Crowd(0.0)
    ids = submit(shared, "mail", 30)
    with open_ledger(url) as theirs:
        limited = kind("mail", crowd, rate=20)
        with Worker(shared, [limited]), Worker(theirs, [limited]):
            wait_for_jobs(shared, *ids)
    starts = sorted(crowd.starts)
    assert len(starts) == 30
    took = starts[-1] - starts[0]
    assert took >= (30 - 2) / 20 - 0.15, f"{took} s"
    assert took < 30


def test_racing_claims_never_take_the_same_slot(shared: Ledger, url: str) -> None:
    submit(shared, "mail", 200)
    got: list[int] = []

    def take(name: str) -> None:
        with open_ledger(url) as own:
            for _ in range(20):
                with own.connections.write.use() as session:
                    found = claim(
                        session, own.connections.store, ClaimOptions({"mail": 4}, name, 60.0, 4), {"mail": Limit(concurrency=7)}
                    )
                got.extend(lease.job_id for lease in found.leases)

    threads = [threading.Thread(target=take, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 7


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 5)), max_size=50), st.floats(0.5, 200))
def test_a_rate_holds_in_every_window(asks: list[tuple[float, int]], rate: float) -> None:
    now, tokens, at = 0.0, None, 0.0
    taken: list[float] = []
    for passed, wanted in asks:
        now += passed
        have = refill_tokens(tokens, now - at, rate)
        got = min(wanted, int(have))
        taken += [now] * got
        tokens, at = have - got, now
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            window = taken[last] - taken[first]
            assert last - first + 1 <= window * rate + max(1.0, rate * BURST_SECONDS) + 1e-6


@pytest.mark.req("L-7")
@pytest.mark.parametrize("limit", [{"concurrency": 1}, {"rate": 0.001}])
def test_due_jobs_held_back_by_a_limit_do_not_count_as_other_work(shared: Ledger, limit: dict[str, Any]) -> None:
    """A visit to quarantined jobs ends early for other due jobs, if these can be claimed."""
    work = kind("mail", lambda lease: None, **limit)
    submit(shared, "mail", 2)
    options = WorkerOptions("idle", 1, 1, 60.0, 1.0, Parking(), 60.0)
    idle = dispatcher.Dispatcher(shared, shared, {"mail": work}, options, info={}, context=copy_context())
    try:
        assert idle._claimer._has_due_jobs()
        with shared.connections.write.use() as session:
            held = claim(session, shared.connections.store, ClaimOptions({"mail": 1}, "other", 60.0, 1), {"mail": Limit(**limit)})
        assert len(held.leases) == 1
        assert not idle._claimer._has_due_jobs()
    finally:
        idle._executors.close()


def test_a_limited_type_without_due_jobs_is_claimed_once(shared: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claim locks its row, and takes several round trips."""
    claims: list[int] = []

    def counted(*args: Any) -> Any:
        found = claim(*args)
        claims.append(len(found.leases))
        return found

    monkeypatch.setattr(limits, "claim", counted)
    options = WorkerOptions("idle", 1, 1, 60.0, 1.0, Parking(), 60.0)
    work = kind("mail", lambda lease: None, concurrency=2)
    idle = dispatcher.Dispatcher(shared, shared, {"mail": work}, options, info={}, context=copy_context())

    def look() -> None:
        idle._state.empty_until.clear()
        idle._claimer.claim_jobs(is_busy=False, defers_settlements=False)

    try:
        for _ in range(3):
            look()
        assert claims == [0]
        submit(shared, "mail")
        look()
        assert claims == [0, 1]
    finally:
        idle._executors.close()
