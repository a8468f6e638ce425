"""A ledger with partitions in every state."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.ledger import Ledger
from redrive.ledger.model import Entry
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.key import Partition
from tests.conformance.partitions.world import DAY, World

ODD = "Zoë, Söhne/Co"
BAD = f"crm/c3/orders/{DAY}"


@pytest.fixture
def lake(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Eight customers of one day: c0 to c2 accepted, c3 and c4 failed, c5 without raw data, c6 terminal, c7 running, and one with
    an unusual name, whose newer run was rejected. Sweep 2 is a running backfill.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    world = World(ledger)
    world.backfill([*(f"c{n}" for n in range(8)), ODD])
    leases = {lease.partition.customer_id: lease for lease in world.claim()}
    world.accept(*(leases[name] for name in ("c0", "c1", "c2", ODD)), rows=48_201)
    world.reject(leases["c3"])
    world.reject(leases["c4"], reason="TimeoutError")
    world.reject(leases["c5"], reason="ConnectError", manifest=False)
    world.reject(leases["c6"], final=True)
    world.retry(Partition("crm", ODD, "orders", DAY), act="reprocess")
    (lease,) = world.claim()
    world.reject(lease)
    days = Grid.of("crm", "orders", ["c0", "c1"], DAY + timedelta(days=1), DAY + timedelta(days=200))
    world.control.backfill(days, actor="jane@example.com", because="three years of history", share=0.2, canary=50, halt_on=0.05)
    yield world
    assert world.queries.imbalance() == []


def audit_entries(lake: World, action: str) -> list[Entry]:
    return [entry for entry in lake.ledger.audit(limit=1000) if entry.action == action]
