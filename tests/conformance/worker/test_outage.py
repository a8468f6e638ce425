"""An outage is not poison (L-7): a kind is parked, probed, and let go; nothing is charged, and poison still ends."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from redrive.ledger import Lease, Ledger
from redrive.worker.parking import Parking
from redrive.worker.worker import Worker

from .world import ended, heard, kind, submit, until

QUICK = Parking(first=0.2, longest=0.4)


class Service:
    """What the work calls: down, or up; and it never takes one of the orders."""

    def __init__(self) -> None:
        self.up = threading.Event()
        self.calls: Counter[str] = Counter()

    def __call__(self, lease: Lease) -> None:
        self.calls[lease.key] += 1
        if lease.key == "shop:ann:0:mail:v1":
            raise RuntimeError("this order is broken")
        if not self.up.is_set():
            raise ConnectionError(f"no answer for {lease.key}")


@pytest.mark.req("L-7")
def test_an_outage_parks_the_kind_and_its_end_lets_it_go(ledger: Ledger) -> None:
    service = Service()
    ids = submit(ledger, "mail", 40)
    with heard() as records, Worker(ledger, [kind("mail", service)], parking=QUICK) as worker:
        until(lambda: "mail" in worker.status.parked)
        assert "ConnectionError: no answer for" in worker.status.parked["mail"]
        tally = ledger.counts()["mail"]
        assert (tally.dead, tally.ready + tally.leased) == (0, 40)
        until(lambda: sum(record.kind == "again" for record in records) > 3, "it is probed")
        calls = service.calls.total()
        service.up.set()
        jobs = ended(ledger, *ids)
        until(lambda: not worker.status.parked)
    assert calls < 40 + 20, "the outage was met by few"
    assert {job.shown for job in jobs[1:]} == {"done"}
    assert max(job.attempts for job in jobs[1:]) <= 2, "only what ran while nobody could know was charged"
    assert (jobs[0].shown, jobs[0].reason, jobs[0].attempts) == ("dlq", "attempts", 3), "poison ends all the same"
    assert [record.kind for record in records if "parked" in record.kind] == ["parked", "unparked"]
    assert [entry.action for entry in ledger.audit()] == ["kind.park", "kind.unpark"]


@pytest.mark.req("L-7")
def test_all_workers_and_the_operator_see_it(shared: Ledger, url: str) -> None:
    from redrive.ledger import open_ledger
    from redrive.ops.ledger import status

    service = Service()
    submit(shared, "mail", 30)
    with open_ledger(url) as theirs, Worker(shared, [kind("mail", service)], parking=Parking(first=60)) as one:
        until(lambda: "mail" in one.status.parked)
        with Worker(theirs, [kind("mail", service)]) as other:
            until(lambda: "mail" in other.status.parked)
            assert "ConnectionError" in status(theirs).parked["mail"]


@pytest.mark.req("L-7")
def test_parking_can_be_switched_off(ledger: Ledger) -> None:
    ids = submit(ledger, "mail", 20)
    with Worker(ledger, [kind("mail", Service())], parking=Parking.disabled()) as worker:
        jobs = ended(ledger, *ids)
    assert {job.reason for job in jobs} == {"attempts"}
    assert worker.status.parked == {}


@pytest.mark.req("L-7")
def test_a_few_failures_are_no_outage(ledger: Ledger) -> None:
    ids = submit(ledger, "mail", 9)
    with Worker(ledger, [kind("mail", Service())]):
        assert {job.reason for job in ended(ledger, *ids)} == {"attempts"}
