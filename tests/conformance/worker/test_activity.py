"""A worker counts its attempts, for the charts."""

from __future__ import annotations

import pytest

from redrive.errors import Stop
from redrive.ledger import Lease, Ledger
from redrive.ledger.stats import activity
from redrive.ledger.stats.activity import ALL_KINDS
from redrive.worker.worker import Worker
from tests.conformance.worker.world import EXECUTIONS, for_execution, kind, submit, wait_for_jobs


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_ended_attempts_are_counted_by_outcome(ledger: Ledger, execution: str) -> None:
    tried: set[str] = set()

    def flaky(lease: Lease) -> None:
        if lease.key not in tried:
            tried.add(lease.key)
            raise ConnectionError("reset by peer")

    def broken(lease: Lease) -> None:
        raise Stop("no such account")

    kinds = [
        kind("mail", for_execution(execution, lambda lease: None), execution),
        kind("flaky", for_execution(execution, flaky), execution),
        kind("broken", for_execution(execution, broken), execution),
    ]
    ids = [*submit(ledger, "mail", 20), *submit(ledger, "flaky", 3), *submit(ledger, "broken", 2)]
    with Worker(ledger, kinds):
        wait_for_jobs(ledger, *ids)
    with ledger.reading() as connection:
        sums = activity.sums_by_kind(connection, 0, 2**40)
        (total,) = activity.read_steps(connection, ALL_KINDS, 0, 2**40, 1).values()
    assert sums == {"mail": (20, 0, 0, 0), "flaky": (3, 3, 0, 0), "broken": (0, 0, 2, 0)}
    assert total.done == 23
    assert sum(total.wait.values()) == sum(total.run.values()) == 28


@pytest.mark.req("Q-12")
def test_an_idle_worker_writes_no_rows(ledger: Ledger) -> None:
    with Worker(ledger, [kind("mail", lambda lease: None)]):
        pass
    with ledger.reading() as connection:
        assert activity.read_steps(connection, ALL_KINDS, 0, 2**40, 1) == {}
