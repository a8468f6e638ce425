"""Jobs that are held, paused, limited or suspended when the ledger's clock is set back: none is delayed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.errors import Suspended
from redrive.ledger import Ledger, NewJob
from redrive.ledger.jobs import limits, pauses
from redrive.ledger.jobs.limits import Limit
from redrive.ledger.jobs.tenants import TenantLimit
from redrive.ledger.model import Lease, new_token
from redrive.ledger.store.protocol import ClaimOptions
from redrive.worker.steps import JobSteps
from redrive.worker.worker import Worker
from tests.conformance.ledger.world import pass_time, session

from .test_clock_steps import HOUR, LEASE, Jump, due_in, jump
from .world import kind, wait_for_jobs

__all__ = ["jump"]
pytestmark = pytest.mark.req("L-9")


def claim(ledger: Ledger, most: int = 10) -> list[Lease]:
    return sorted(ledger.claim({"mail": most}, worker="w", lease=LEASE))


def sequenced(*keys: str) -> list[NewJob]:
    return [NewJob("mail", key, sequence="acc") for key in keys]


@pytest.mark.req("Q-7")
def test_a_sequence_from_a_jump_of_the_clock_goes_on_in_order(shared: Ledger, jump: Jump) -> None:
    jump.ahead()
    shared.submit_many(sequenced("c", "a", "b"))
    (head,) = claim(shared)
    shared.settle(head.again(60.0, error="no response", reason="failed"))
    jump.back()
    assert due_in(shared, head.job_id) == pytest.approx(60, abs=30)
    assert claim(shared) == [], "the head holds its sequence back"
    pass_time(shared, 120)
    order = []
    while leases := claim(shared):
        order += [lease.key for lease in leases]
        shared.settle([lease.done() for lease in leases])
    assert order == ["c", "a", "b"]


@pytest.mark.req("Q-7")
def test_a_held_job_from_before_a_jump_is_due_when_it_is_released(shared: Ledger, jump: Jump) -> None:
    shared.submit_many(sequenced("a", "b"))
    jump.ahead()
    (head,) = claim(shared)
    jump.back()
    shared.settle(head.done())
    assert [lease.key for lease in claim(shared)] == ["b"]


@pytest.mark.req("Q-4")
def test_jobs_submitted_during_a_pause_and_a_jump_run_when_the_type_is_resumed(shared: Ledger, jump: Jump) -> None:
    jump.ahead()
    with session(shared) as held:
        pauses.pause(held, "job type", "mail", until=None, actor="ann", because="INC-42")
    ids = [job.id for job in shared.submit_many([NewJob("mail", f"k{n}") for n in range(3)])]
    jump.back()
    with Worker(shared, [kind("mail", lambda lease: None)]):
        with session(shared) as held:
            pauses.resume(held, "job type", "mail", actor="ann", because="over")
        assert {job.state for job in wait_for_jobs(shared, *ids)} == {"done"}


def claim_limited(ledger: Ledger) -> list[str]:
    options = ClaimOptions({"mail": 10}, "w", 60.0, 10, token=new_token())
    with session(ledger) as held:
        result = limits.claim(held, ledger.connections.store, options, {"mail": Limit(tenants=TenantLimit(rate=1.0))})
    return [lease.key for lease in result.leases]


@pytest.mark.req("Q-6")
def test_a_tenant_without_tokens_gets_one_after_the_clock_is_set_back(shared: Ledger, jump: Jump) -> None:
    jump.ahead()
    shared.submit_many([NewJob("mail", f"k{n}", tenant="ann") for n in range(3)])
    assert len(claim_limited(shared)) == 1
    assert claim_limited(shared) == []
    jump.back()
    assert len(claim_limited(shared)) == 1
    assert claim_limited(shared) == [], "the rate holds, by the new clock"


def suspend(ledger: Ledger, act: str, seconds: float) -> int:
    """A job that sleeps, or waits for a signal. Return its id."""
    ledger.submit(NewJob("mail", "k"))
    (lease,) = claim(ledger)
    resume(ledger, lease, act, seconds)
    return lease.job_id


def resume(ledger: Ledger, lease: Lease, act: str, seconds: float) -> str:
    """Run the job again. Return the outcome of its attempt."""
    steps = JobSteps(ledger, lease, ledger.now)
    try:
        if act == "sleep":
            steps.sleep(timedelta(seconds=seconds), None)
        else:
            steps.wait_for("approved", seconds)
    except Suspended:
        steps.suspend()
        return "suspended"
    except TimeoutError:
        return "timeout"
    return "awake"


@pytest.mark.req("Q-8")
@pytest.mark.parametrize(("act", "ends"), [("sleep", "awake"), ("wait", "timeout")])
@pytest.mark.parametrize("seconds", [60.0, 2 * HOUR])
def test_a_sleep_begun_during_a_jump_takes_no_longer(shared: Ledger, jump: Jump, act: str, ends: str, seconds: float) -> None:
    jump.ahead()
    job_id = suspend(shared, act, seconds)
    jump.back()
    assert due_in(shared, job_id) == pytest.approx(seconds, abs=30)
    pass_time(shared, seconds + 60)
    (lease,) = claim(shared)
    assert resume(shared, lease, act, seconds) == ends


@pytest.mark.req("Q-8")
@pytest.mark.parametrize("act", ["sleep", "wait"])
def test_a_sleep_from_before_a_jump_is_not_cut_short(shared: Ledger, jump: Jump, act: str) -> None:
    job_id = suspend(shared, act, 2 * HOUR)
    pass_time(shared, 120)
    jump.ahead()
    jump.back()
    assert due_in(shared, job_id) == pytest.approx(2 * HOUR - 120, abs=30)
