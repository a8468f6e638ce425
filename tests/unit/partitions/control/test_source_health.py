"""When failed extractions are the source's fault, and when they are one customer's."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from redrive import Parking
from redrive.partitions.control.source_health import OutageDetector, SourceOutage
from redrive.partitions.key import Partition
from redrive.partitions.model import PartitionLease, Verdict

NOW = datetime(2026, 2, 1, tzinfo=timezone.utc)
DOWN = "ConnectionError: no answer from #"
REFUSED = "HTTPStatusError 403 crm"


class Seen:
    """Outages of a source with several customers, one outcome after the other."""

    def __init__(self, parking: Parking, *, only: bool = False) -> None:
        self.outages = OutageDetector(parking, lambda _source, _customer: only)
        self.now = 0.0

    def end(
        self, number: int, customer: str, verdict: Verdict, *, source: str = "crm", answered: bool = False
    ) -> SourceOutage | None:
        key = Partition(source, customer, "orders", NOW.date())
        lease = PartitionLease(number, key, 1, f"r{number}", "initial", "fresh", 0, None, None, None, None, 0, NOW)
        self.now += 1
        return self.outages.add(lease, verdict, self.now, has_data=answered)

    def fail(self, number: int, customer: str | None = None, source: str = "crm") -> SourceOutage | None:
        """A transient fault of another customer."""
        return self.end(number, customer or f"c{number}", Verdict("r", "rejected", signature=DOWN), source=source)

    def refuse(self, number: int, customer: str) -> SourceOutage | None:
        return self.end(number, customer, Verdict("r", "rejected", signature=REFUSED, shared=True))

    def succeed(self, number: int, customer: str) -> None:
        assert self.end(number, customer, Verdict("r", "accepted"), answered=True) is None


@pytest.mark.req("P-10")
def test_many_partitions_of_one_source_are_an_outage() -> None:
    seen = Seen(Parking(least=3))
    assert [seen.fail(1) for _ in range(5)] == [None] * 5, "one partition is not an outage"
    assert seen.fail(2, source="erp") is None
    assert seen.fail(2) is None
    found = seen.fail(3)
    assert found is not None
    assert (found.source, found.signature) == ("crm", DOWN)
    assert {partition for partition, _ in found.attempts} == {1, 2, 3}
    assert found.reason == f"attempts of 3 partitions failed for one reason: {DOWN}"
    assert seen.fail(4) is None, "a new outage needs new evidence"


def test_data_of_other_customers_is_evidence_against_an_outage() -> None:
    seen = Seen(Parking(least=3))
    assert seen.end(9, "c9", Verdict("r", "rejected", reason="row_count"), answered=True) is None
    assert [seen.fail(number) for number in range(1, 4)] == [None] * 3, "three of four is less than nine in ten"


def test_transient_faults_of_one_customer_are_not_an_outage() -> None:
    seen = Seen(Parking(least=3))
    assert [seen.fail(number, "acme") for number in range(9)] == [None] * 9
    assert any(Seen(Parking(least=1), only=True).fail(number, "acme") for number in range(9)), "unless it is the only one"


def test_permanent_and_unknown_errors_are_not_evidence() -> None:
    seen = Seen(Parking(least=2))
    assert [seen.end(number, f"c{number}", Verdict("r", "rejected")) for number in range(9)] == [None] * 9
    assert seen.fail(10) is None
    assert seen.fail(11) is not None


def test_rejections_of_one_customer_do_not_pause_the_source() -> None:
    seen = Seen(Parking())
    assert [seen.refuse(number, "revoked") for number in range(50)] == [None] * 50


def test_rejections_of_two_customers_are_an_outage() -> None:
    seen = Seen(Parking())
    assert seen.refuse(1, "a") is None
    assert seen.refuse(2, "a") is None
    found = seen.refuse(3, "b")
    assert found is not None
    assert (found.attempts, found.reason) == (((1, 1), (2, 1), (3, 1)), f"2 customers were refused: {REFUSED}")


def test_rejections_of_the_only_customer_are_an_outage() -> None:
    found = Seen(Parking(), only=True).refuse(1, "acme")
    assert found is not None
    assert found.reason == f"1 customer was refused: {REFUSED}"


def test_recent_data_of_other_customers_is_evidence_against_an_outage_of_credentials() -> None:
    seen = Seen(Parking())
    for number in range(18):
        seen.succeed(number, f"c{number}")
    assert [seen.refuse(100 + number, f"revoked{number % 2}") for number in range(20)] == [None] * 20
    assert any(seen.refuse(200 + number, f"c{number}") for number in range(18)), "then all of them were refused"


def test_detection_can_be_disabled() -> None:
    seen = Seen(Parking.disabled())
    assert all(seen.fail(number) is None for number in range(50))
    assert all(seen.refuse(number, f"c{number}") is None for number in range(50))
