"""The ledger's clock jumps ahead by an hour and is set back: backoffs and pauses are kept."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select

from redrive.ledger.db.partition_tables import source, work
from redrive.ledger.jobs.clocks import correct_setback
from redrive.partitions.model import PartitionLease, Release
from redrive.partitions.work.runner import ControlPlaneTask

from .world import World

HOUR = 3600


def reject(world: World, lease: PartitionLease, after: float) -> None:
    assert [one.outcome for one in world.reject(lease, after=after)] == ["rejected"]


def jump(world: World) -> None:
    """Move all stored times into the past, which has the effect of a jump ahead."""
    world.pass_time(HOUR)
    world.ledger.maintenance.heartbeat("w")


def set_clock_back(world: World) -> None:
    world.pass_time(-HOUR)
    with world.ledger.connections.write.use() as session:
        assert correct_setback(session) == pytest.approx(HOUR, abs=60)


def due_in(world: World) -> float:
    with world.ledger.connections.read.use() as session:
        due = session.core.execute(select(work.c.due_at).where(work.c.lease_until.is_(None))).scalar_one()
    return float((due - world.ledger.now()).total_seconds())


@pytest.mark.req("L-9")
@pytest.mark.parametrize("after", [30 * 60, 2 * HOUR])
def test_a_retry_from_before_the_jump_keeps_its_backoff(world: World, after: float) -> None:
    reject(world, world.lease_one(), after)
    jump(world)
    set_clock_back(world)
    assert due_in(world) == pytest.approx(after, abs=30)


@pytest.mark.req("L-9")
@pytest.mark.parametrize("after", [120.0, 2 * HOUR])
def test_a_retry_written_during_the_jump_waits_its_backoff(world: World, after: float) -> None:
    jump(world)
    reject(world, world.lease_one(), after)
    set_clock_back(world)
    assert due_in(world) == pytest.approx(after, abs=30)


@pytest.mark.req("L-9")
def test_a_partition_queued_during_the_jump_is_due(world: World) -> None:
    jump(world)
    world.backfill(["acme"])
    world.give_back(world.claim(1)[0], "stopped")
    set_clock_back(world)
    assert due_in(world) < 30


@pytest.mark.req("L-9")
def test_only_a_pause_of_the_policy_is_probed(world: World) -> None:
    jump(world)
    world.backfill(["a", "b"])
    world.control.release_uncharged([Release(world.claim(1)[0], "systemic", error="503", signature="503")])
    set_clock_back(world)
    assert len(world.claim()) == 1, "the probe"
    until = world.ledger.now() + timedelta(minutes=30)
    world.control.pause_source("crm", until=until, actor="ann", because="a test")
    jump(world)
    set_clock_back(world)
    with world.ledger.connections.read.use() as session:
        stored = session.core.execute(select(source.c.paused_until)).scalar_one()
    assert abs((stored - until).total_seconds()) < 1


def tend(tending: ControlPlaneTask, world: World, monkeypatch: pytest.MonkeyPatch, *, at: float) -> None:
    """Run the background task once, at this time of the monotonic clock."""
    monkeypatch.setattr("redrive.partitions.control.plane.monotonic", lambda: at)
    tending.do(world.ledger.now())


@pytest.mark.req("L-9")
def test_a_live_worker_keeps_its_lease_when_the_clock_jumps_ahead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tending = ControlPlaneTask(world.ledger, [])
    lease = world.lease_one()
    tend(tending, world, monkeypatch, at=0.0)
    jump(world)
    tend(tending, world, monkeypatch, at=1.0)
    tend(tending, world, monkeypatch, at=30.0)
    assert world.control.renew([lease]) == []
    world.pass_time(301)
    tend(tending, world, monkeypatch, at=31.0)
    tend(tending, world, monkeypatch, at=90.0)
    assert world.control.renew([lease]) == [lease], "a dead worker's lease ends"


@pytest.mark.req("L-9")
def test_a_lease_that_expires_between_two_rounds_is_recovered_immediately(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tending = ControlPlaneTask(world.ledger, [])
    lease = world.lease_one()
    tend(tending, world, monkeypatch, at=0.0)
    world.pass_time(310)
    tend(tending, world, monkeypatch, at=60.0)
    assert world.control.renew([lease]) == [lease]
