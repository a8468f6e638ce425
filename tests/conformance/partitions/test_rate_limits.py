"""Rate limits of datasets and sources, shared by all workers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.ledger import Ledger
from redrive.partitions.control.limits import MIN_WAIT_SECONDS, RateLimits, TokenBucket
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.retry_schedule import DatasetLimits

from .world import AUDIT, DAY, World

SLOW = 0.001
"""In a second: no machine is slow enough for a test to reach the next one."""


@pytest.mark.req("P-10")
def test_the_rate_of_a_dataset_is_shared_by_all_planes(ledger: Ledger) -> None:
    world = World(ledger, rate=SLOW)
    world.backfill(["a", "b", "c"])
    planes = [world.plane(seed) for seed in (1, 2)]
    assert [len(plane.claim(10, worker="w")) for plane in planes] == [1, 0]
    assert planes[1].seconds_until_room is not None
    assert 900 < planes[1].seconds_until_room <= 1000, "it says when to look again"
    why = world.queries.explain(world.key("c"), world.limits).why
    assert any(said.startswith("crm/orders is limited to 0.001 starts per second; the next one in ") for said in why)
    world.pass_time(1001)
    assert [len(plane.claim(10, worker="w")) for plane in planes] == [1, 0]
    world.pass_time(5000)
    assert [len(plane.claim(10, worker="w")) for plane in planes] == [1, 0], "what nobody used is not saved up"
    assert planes[0].seconds_until_room is None, "nothing more waits"


@pytest.mark.req("P-10")
def test_a_sources_rate_is_for_all_its_datasets_and_the_smallest_counts(ledger: Ledger) -> None:
    orders, clicks = DatasetLimits("crm", "orders", source_rate=100.0), DatasetLimits("crm", "clicks", source_rate=SLOW)
    other = DatasetLimits("erp", "orders")
    plane = ControlPlane(ledger, [orders, clicks, other])
    for terms in (orders, clicks, other):
        plane.backfill(Grid.of(*terms.dataset, ["a", "b"], DAY), **AUDIT)
    leases = plane.claim(10, worker="w")
    assert sorted(lease.partition.source for lease in leases) == ["crm", "erp", "erp"]
    assert [lease.partition.source for lease in plane.claim(10, worker="w")] == []


def test_a_rate_does_not_hide_a_new_schedule(ledger: Ledger) -> None:
    """The row with the remaining rate is the row with the schedule's last time."""
    world = World(ledger, rate=SLOW)
    world.backfill(["a"])
    assert len(world.claim()) == 1
    assert world.control.last_fired_at("crm", "orders") is None
    now = ledger.now()
    assert world.control.start_schedule_at("crm", "orders", now, cron="15 2 * * *") == now
    assert world.control.start_schedule_at("crm", "orders", now + timedelta(days=1), cron="15 2 * * *") == now
    assert world.control.last_fired_at("crm", "orders") == now


def test_seconds_until_a_rate_has_room() -> None:
    rates = RateLimits(
        {("crm", "orders"): TokenBucket(10.0, 0.5), ("crm", "clicks"): TokenBucket(10.0, 1.0)}, {"crm": TokenBucket(4.0, 0.8)}
    )
    assert rates.seconds_until_room([("crm", "orders")]) == pytest.approx(0.05), "whichever allows it last"
    assert rates.seconds_until_room([("erp", "orders")]) is None
    rates.spent["crm"] = 1
    assert rates.seconds_until_room([("crm", "clicks"), ("crm", "orders")]) == pytest.approx(0.3)
    assert RateLimits({("crm", "orders"): TokenBucket(10**4, 0.5)}).seconds_until_room([("crm", "orders")]) == MIN_WAIT_SECONDS
