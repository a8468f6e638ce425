"""An outage is known by many partitions of a source that fail for one passing reason."""

from __future__ import annotations

from datetime import datetime, timezone

from redrive import Parking
from redrive.partitions.outage import Outages
from redrive.partitions.partition import Partition
from redrive.partitions.record import Lease, Verdict

NOW = datetime(2026, 2, 1, tzinfo=timezone.utc)
DOWN = "ConnectionError: no answer from #"


def lease(number: int, source: str = "crm") -> Lease:
    key = Partition(source, f"c{number}", "orders", NOW.date())
    return Lease(number, key, 1, f"r{number}", "initial", "fresh", 0, None, None, None, None, 0, NOW)


def rejected(signature: str | None = DOWN) -> Verdict:
    return Verdict("r", "rejected", reason="ConnectionError", signature=signature)


def test_many_different_partitions_of_one_source() -> None:
    outages = Outages(Parking(least=3))
    assert [outages.seen(lease(1), rejected(), 0.0, answered=False) for _ in range(5)] == [None] * 5, "one is no outage"
    assert outages.seen(lease(2, "erp"), rejected(), 0.0, answered=False) is None
    assert outages.seen(lease(2), rejected(), 0.0, answered=False) is None
    found = outages.seen(lease(3), rejected(), 0.0, answered=False)
    assert found is not None
    assert (found.source, found.signature, found.attempts) == ("crm", DOWN, ((1, 1), (2, 1), (3, 1)))
    assert found.says == f"3 partitions failed for one reason: {DOWN}"
    assert outages.seen(lease(4), rejected(), 0.0, answered=False) is None, "what was, is over"


def test_a_source_that_answers_others_is_not_down() -> None:
    outages = Outages(Parking(least=3))
    assert outages.seen(lease(9), Verdict("r", "rejected", reason="row_count"), 0.0, answered=True) is None
    for number in range(1, 4):
        assert outages.seen(lease(number), rejected(), 0.0, answered=False) is None, "three of four: not nine in ten"


def test_errors_that_nobody_knows_to_pass_say_nothing() -> None:
    outages = Outages(Parking(least=2))
    for number in range(9):
        assert outages.seen(lease(number), rejected(None), 0.0, answered=False) is None
    assert outages.seen(lease(10), rejected(), 0.0, answered=False) is None
    assert outages.seen(lease(11), rejected(), 0.0, answered=False) is not None


def test_it_can_be_switched_off() -> None:
    outages = Outages(Parking.disabled())
    assert all(outages.seen(lease(number), rejected(), 0.0, answered=False) is None for number in range(50))
