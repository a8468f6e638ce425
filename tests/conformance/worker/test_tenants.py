"""Tenants of a job type: fair shares and limits, over all workers (Q-6)."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.ledger import Lease, Ledger, NewJob, open_ledger
from redrive.ledger.jobs.limits import Limit, claim
from redrive.ledger.jobs.tenants import NO_TENANT, TenantLimit, share_out
from redrive.ledger.store.protocol import ClaimOptions
from redrive.worker.worker import Worker

from .world import kind, wait_for_jobs

pytestmark = pytest.mark.req("Q-6")


def submit(ledger: Ledger, tenant: str | None, count: int, *, priority: int = 0) -> list[int]:
    """Submit jobs of a tenant, and return their ids."""
    jobs = [NewJob("mail", f"{tenant}/{priority}/{n}", tenant=tenant, priority=priority) for n in range(count)]
    return [job.id for job in ledger.submit_many(jobs)]


def claim_limited(ledger: Ledger, limit: TenantLimit, most: int) -> Counter[str]:
    """Claim with limits, and count the leases of each tenant."""
    options = ClaimOptions({"mail": most}, "w", 60.0, most)
    with ledger.connections.write.use() as session:
        result = claim(session, ledger.connections.store, options, {"mail": Limit(tenants=limit)})
    return Counter(lease.key.split("/")[0] for lease in result.leases)


class Crowd:
    """Counts the running jobs of each tenant."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, lease: Lease) -> None:
        tenant = lease.key.split("/")[0]
        with self._lock:
            self.order.append(tenant)
            self.now[tenant] += 1
            self.most[tenant] = max(self.most[tenant], self.now[tenant])
        time.sleep(0.01)
        with self._lock:
            self.now[tenant] -= 1


def test_a_worker_runs_a_small_tenant_beside_a_large_one(shared: Ledger) -> None:
    crowd = Crowd()
    ids = submit(shared, "big", 60) + submit(shared, "small", 1)
    with Worker(shared, [kind("mail", crowd, tenants=TenantLimit())], threads=2):
        wait_for_jobs(shared, *ids)
    assert crowd.order.index("small") < 10


def test_no_tenant_runs_more_jobs_than_its_limit(shared: Ledger, url: str) -> None:
    crowd = Crowd()
    ids = submit(shared, "a", 20) + submit(shared, "b", 20)
    limited = kind("mail", crowd, tenants=TenantLimit(concurrency=2))
    with open_ledger(url) as theirs, Worker(shared, [limited]), Worker(theirs, [limited]):
        wait_for_jobs(shared, *ids)
    assert max(crowd.most.values()) <= 2
    assert set(crowd.most) == {"a", "b"}


def test_a_tenant_at_its_limit_does_not_hold_up_others(shared: Ledger) -> None:
    submit(shared, "a", 50)
    submit(shared, "b", 5)
    submit(shared, "c", 5)
    limit = TenantLimit(concurrency=3)
    assert claim_limited(shared, limit, 100) == {"a": 3, "b": 3, "c": 3}
    assert claim_limited(shared, limit, 100) == {}


@pytest.mark.parametrize("limit", [TenantLimit(concurrency=1), TenantLimit(rate=1e-6)], ids=["concurrency", "rate"])
def test_urgent_jobs_of_a_tenant_at_its_limit_do_not_hold_up_others(shared: Ledger, limit: TenantLimit) -> None:
    submit(shared, "a", 3, priority=-2)
    assert claim_limited(shared, limit, 1) == {"a": 1}
    for tenant in ("b", "c", "d"):
        submit(shared, tenant, 1)
    submit(shared, "e", 1, priority=1)
    taken = [claim_limited(shared, limit, 1) for _ in range(5)]
    assert taken[:4] == [{tenant: 1} for tenant in "bcde"]
    assert taken[4] == {}


def test_urgent_jobs_without_a_tenant_do_not_hold_up_tenants(shared: Ledger) -> None:
    submit(shared, None, 1, priority=-1)
    submit(shared, "a", 1)
    assert claim_limited(shared, TenantLimit(concurrency=1), 1) == {"a": 1}


def test_a_tenant_starts_no_more_jobs_than_its_rate_allows(shared: Ledger) -> None:
    submit(shared, "a", 50)
    submit(shared, "b", 1)
    limit = TenantLimit(rate=20.0)
    assert claim_limited(shared, limit, 100) == {"a": 2, "b": 1}
    assert claim_limited(shared, limit, 100)["a"] <= 1


def test_a_claim_of_one_finds_the_tenants_with_tokens_among_hundreds(shared: Ledger) -> None:
    limit = TenantLimit(rate=1e-6)
    names = [f"{letter}{n:03}" for letter in "az" for n in range(150)]
    shared.submit_many([NewJob("mail", f"{name}/{n}", tenant=name) for name in names for n in range(2)])
    while claim_limited(shared, limit, 400):
        pass
    assert shared.counts()["mail"].leased == len(names)
    for tenant in ("m", "n", "o"):
        submit(shared, tenant, 1)
    assert [claim_limited(shared, limit, 1) for _ in range(3)] == [{"m": 1}, {"n": 1}, {"o": 1}]


def test_jobs_from_before_the_option_get_turns_beside_a_backlog(shared: Ledger) -> None:
    submit(shared, None, 2)
    for tenant in ("a", "b"):
        submit(shared, tenant, 20)
    taken = sum((claim_limited(shared, TenantLimit(concurrency=50), 1) for _ in range(9)), Counter())
    assert taken["None"] == 2


def test_jobs_from_before_the_option_get_a_tenant(shared: Ledger) -> None:
    ids = submit(shared, None, 2)
    limit = TenantLimit(concurrency=1)
    claim_limited(shared, limit, 10)
    assert sum(claim_limited(shared, limit, 10).values()) == 1
    job = shared.get(ids[0])
    assert job is not None
    assert job.tenant == NO_TENANT


def count_steps_of_claim(ledger: Ledger) -> int:
    """Claim with limits, and return the steps of SQLite's virtual machine."""
    steps: list[None] = []
    with ledger.connections.write.use() as session:
        raw = session.raw
    raw.set_progress_handler(lambda: steps.append(None), 1)
    claim_limited(ledger, TenantLimit(concurrency=1), 10)
    raw.set_progress_handler(None, 1)
    return len(steps)


def test_a_claim_with_limits_does_not_read_scheduled_jobs(on_sqlite: Ledger) -> None:
    submit(on_sqlite, "a", 2)
    claim_limited(on_sqlite, TenantLimit(concurrency=1), 10)
    before = count_steps_of_claim(on_sqlite)
    on_sqlite.submit_many([NewJob("mail", f"later/{n}", tenant="a", delay=3600) for n in range(5000)])
    assert count_steps_of_claim(on_sqlite) < 2 * before


@given(
    allowed=st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 20), max_size=8),
    most=st.integers(0, 50),
)
def test_shares_are_equal_as_far_as_limits_allow(allowed: dict[str, int], most: int) -> None:
    shares = share_out(list(allowed), allowed, most)
    assert sum(shares.values()) == min(most, sum(allowed.values()))
    assert all(0 < share <= allowed[name] for name, share in shares.items())
    # A tenant that could take more has at most one job less than any other.
    limited = [shares.get(name, 0) for name in allowed if shares.get(name, 0) < allowed[name]]
    assert all(max(shares.values()) - share <= 1 for share in limited if most)
