"""What is queued or running, day by day and by lane: what the heat map marks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.partitions.store import overview
from tests.conformance.partitions.world import DAY, World

OF = ("crm", "orders")
NEXT = DAY + timedelta(days=1)


@pytest.mark.req("O-4")
def test_what_waits_and_what_runs_is_counted_by_day_and_lane(world: World) -> None:
    world.backfill(3, 2)
    leases = world.claim(6)
    one, other = leases[0], leases[-1]
    world.accept(*(lease for lease in leases if lease not in (one, other)))
    world.reject(one)  # waits for its next attempt
    shown = world.register.under_way([OF, ("crm", "nothing")], DAY, NEXT)
    waits, runs = one.partition.logical_date, other.partition.logical_date
    assert waits != runs
    assert shown == {(*OF, waits): {"backfill": 1}, (*OF, runs): {"backfill": 1}}
    assert world.register.under_way([OF], waits, waits) == {(*OF, waits): {"backfill": 1}}
    assert world.register.under_way([], DAY, NEXT) == {}
    world.reject(other, final=True)


@pytest.mark.req("O-4")
def test_a_look_is_bounded_however_much_there_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "LOOKED_AT", 80)
    world.backfill(30)
    world.reject(*world.claim(30))
    (day,) = world.register.under_way([OF], DAY, DAY).values()
    assert day == {"backfill": 20}
