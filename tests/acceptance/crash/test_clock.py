"""The machine's clock is set while leases on SQLite depend on it: jobs may be delayed, but are not lost or repeated."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from redrive.errors import LeaseLost
from redrive.ledger import NewJob, open_ledger

HOUR = 3600
Step = Callable[[float], None]


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Step:
    """Sets the clock by a number of seconds."""
    moved = 0
    real = time.time_ns

    def set_by(seconds: float) -> None:
        nonlocal moved
        moved += int(seconds * 1e9)

    monkeypatch.setattr("redrive.ledger.db.clock.time.time_ns", lambda: real() + moved)
    return set_by


@pytest.mark.req("L-4", "L-9")
def test_a_clock_set_forward_expires_leases_and_late_settles_are_rejected(step: Step) -> None:
    with open_ledger("sqlite://") as ledger:
        ledger.submit(NewJob("plain", "k"))
        (first,) = ledger.claim({"plain": 1}, worker="a", lease=60)
        step(HOUR)
        assert ledger.reap() == [first.job_id]
        (second,) = ledger.claim({"plain": 1}, worker="b", lease=60)
        assert second.fence == first.fence + 1
        ledger.settle(second.done())
        with pytest.raises(LeaseLost):
            ledger.settle(first.done())
        assert ledger.counts()["plain"][:4] == (1, 0, 0, 1)
        assert ledger.counts()["plain"].late == 1
        assert ledger.imbalance() == []


@pytest.mark.req("L-9")
def test_a_clock_set_back_delays_jobs_and_loses_none(step: Step) -> None:
    with open_ledger("sqlite://") as ledger:
        ledger.submit_many([NewJob("plain", "held"), NewJob("plain", "waiting")])
        (held,) = ledger.claim({"plain": 1}, worker="a", lease=60)
        step(-HOUR)
        assert ledger.reap() == []
        assert ledger.claim({"plain": 9}, worker="b") == []  # due in an hour now
        ledger.submit(NewJob("plain", "new"))  # a new job is due now
        assert [lease.key for lease in ledger.claim({"plain": 9}, worker="b", lease=60)] == ["new"]
        assert ledger.renew([held], lease=60) == []
        ledger.settle(held.done())  # the holder keeps its lease
        step(HOUR)
        assert [lease.key for lease in ledger.claim({"plain": 9}, worker="b")] == ["waiting"]
        assert ledger.imbalance() == []


def test_a_renewed_lease_survives_a_clock_set_back_and_forward(step: Step) -> None:
    with open_ledger("sqlite://") as ledger:
        ledger.submit(NewJob("plain", "k"))
        (lease,) = ledger.claim({"plain": 1}, worker="a", lease=60)
        step(-HOUR)
        assert ledger.renew([lease], lease=2 * HOUR) == []
        step(HOUR)
        assert ledger.reap() == []
        ledger.settle(lease.done())
        assert ledger.counts()["plain"].done == 1
