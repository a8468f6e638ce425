"""Plans of many partitions: read in pages, kept compressed, and compared page by page."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from redrive.errors import Drift
from redrive.ops import Operator
from redrive.ops.plans.stored import load_plan, save_plan
from redrive.partitions.model import PartitionFilter
from redrive.partitions.store import frozen_selection
from redrive.partitions.store.frozen_selection import FrozenIds
from redrive.partitions.store.sweeps import pack_ids
from tests.conformance.partitions.world import AUDIT, DAY, World

CRM = PartitionFilter(source="crm", query_name="orders")


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_selection, "PAGE_ROWS", 4)


def reject_some(world: World) -> set[int]:
    """Reject partitions of 3 customers and 5 days for two reasons, and accept those of c2. Return the ids of the rejected."""
    world.backfill(3, days=5)
    rejected = set()
    for lease in world.claim():
        if lease.partition.customer_id == "c2":
            world.accept(lease)
        else:
            world.reject(lease, reason="row_count" if lease.partition.customer_id == "c0" else "Timeout")
            rejected.add(lease.partition_id)
    return rejected


@pytest.mark.parametrize(
    "selection",
    [
        CRM,
        PartitionFilter(source="crm", shades=["failed"]),
        PartitionFilter(source="crm", customers=["c0", "c1", "c2"]),
        PartitionFilter(source="crm", since=DAY, until=DAY + timedelta(days=4)),
    ],
)
def test_a_plan_of_several_pages_has_each_partition_once(world: World, selection: PartitionFilter) -> None:
    rejected = reject_some(world)
    plan = world.queries.freeze("retry", selection)
    assert (plan.count, sorted(plan.ids)) == (10, sorted(rejected))
    assert (plan.reasons, plan.shades) == ({"row_count": 5, "Timeout": 5}, {"failed": 10})
    assert plan.skipped == ({} if selection.only_failing else {"accepted already": 5})
    assert world.queries.freeze("retry", selection).digest == plan.digest
    sweep = world.control.begin_requeue(plan, skip={min(rejected): "no raw data"}, **AUDIT)
    world.control.maintain()
    progress = world.queries.progress(sweep.id)
    assert progress is not None
    assert (progress.queued, progress.skips) == (9, {"no raw data": 1})
    assert {lease.partition_id for lease in world.claim()} == rejected - {min(rejected)}


def test_a_digest_does_not_depend_on_partitions_that_are_not_selected(world: World) -> None:
    reject_some(world)
    selection = PartitionFilter(source="crm", reason="row_count")
    plan = world.queries.freeze("retry", selection)
    world.backfill(["c5", "c6"], days=2)  # moves the ends of pages
    world.accept(*world.claim())
    assert world.queries.freeze("retry", selection).digest == plan.digest
    world.control.begin_requeue(plan, **AUDIT)


def test_a_plan_differs_if_one_partition_differs(world: World) -> None:
    reject_some(world)
    plan = world.queries.freeze("retry", CRM)
    world.retry(world.key("c1", DAY + timedelta(days=4)))
    (lease,) = world.claim()
    assert world.queries.freeze("retry", CRM).skipped["running now"] == 1
    with pytest.raises(Drift, match="since the plan: 1 running now"):
        world.control.begin_requeue(plan, **AUDIT)
    world.reject(lease)
    with pytest.raises(Drift, match="since the plan: 1 changed meanwhile"):
        world.control.begin_requeue(plan, **AUDIT)
    assert world.queries.freeze("retry", CRM).digest != plan.digest


def test_a_stored_plan_has_the_same_partitions(world: World, tmp_path: Path) -> None:
    reject_some(world)
    ops = Operator(world.ledger, actor="ann")
    plan = ops.partitions.retry(CRM)
    save_plan(plan, actor="ann", now=ops.now(), url=ops.url, out=str(tmp_path / "plan.json"))
    loaded = load_plan(str(tmp_path / "plan.json")).plan
    assert (list(loaded.ids), loaded.count, loaded.digest) == (list(plan.ids), 10, plan.digest)
    assert (plan.ids[-1], plan.ids[1:3]) == ([*plan.ids][-1], [*plan.ids][1:3])
    assert ops.begin(loaded, because="looked at").total == 10


def test_ids_of_a_plan_are_kept_compressed() -> None:
    page = [*range(10**9, 10**9 + 100_000)]
    packed = frozen_selection._compress(pack_ids(page))
    ids = FrozenIds((packed, packed), 200_000)
    assert len(packed) < 20_000, "an array has 800,000 bytes"
    assert (len(ids), [*ids] == page * 2, ids[-1], len(repr(ids)) < 100) == (200_000, True, page[-1], True)
