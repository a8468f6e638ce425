"""Queued and running partitions by day and lane, for the heat map."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.partitions.store import overview
from tests.conformance.partitions.world import DAY, World

OF = ("crm", "orders")
NEXT = DAY + timedelta(days=1)


@pytest.mark.req("O-4")
def test_queued_and_running_partitions_are_counted_by_day_and_lane(world: World) -> None:
    world.backfill(3, 2)
    leases = world.claim(6)
    one, other = leases[0], leases[-1]
    world.accept(*(lease for lease in leases if lease not in (one, other)))
    world.reject(one)  # waiting for its next attempt
    shown = world.queries.active_by_day([OF, ("crm", "nothing")], DAY, NEXT)
    waits, runs = one.partition.logical_date, other.partition.logical_date
    assert waits != runs
    assert shown == {(*OF, waits): {"backfill": 1}, (*OF, runs): {"backfill": 1}}
    assert world.queries.active_by_day([OF], waits, waits) == {(*OF, waits): {"backfill": 1}}
    assert world.queries.active_by_day([], DAY, NEXT) == {}
    world.reject(other, final=True)


@pytest.mark.req("O-4")
def test_active_days_read_a_limited_number_of_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MAX_WORK_ROWS", 80)
    world.backfill(30)
    world.reject(*world.claim(30))
    (day,) = world.queries.active_by_day([OF], DAY, DAY).values()
    assert day == {"backfill": 20}
