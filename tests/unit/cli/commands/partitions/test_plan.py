"""`redrive plan`: plans are saved, applied by another person, and rejected after a change."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.ledger import open_ledger
from redrive.ops.plans import stored
from tests.conformance.partitions.world import World
from tests.unit.cli.command import call
from tests.unit.cli.lake import BAD, audit_entries


@pytest.mark.req("O-2")
@pytest.mark.req("O-5")
def test_a_plan_is_saved_and_applied_by_another_person(lake: World, tmp_path: Path) -> None:
    before = len(lake.ledger.audit())
    file = tmp_path / "plan.json"
    planning = ("state", "retry", "crm/orders", "--error", "row_count", "--out", str(file), "--actor", "ann")
    status, printed = call(*planning, width=1000)
    assert (status, "expires in 30 min" in printed, f"redrive plan apply {file}" in printed) == (0, True, True)
    status, printed = call("state", "retry", BAD, "--plan", "--json")
    kept = json.loads(printed)
    assert (status, kept["plan"]["count"], re.fullmatch("p-[0-9a-f]{8}", kept["id"]) is not None) == (0, 1, True)
    assert len(lake.ledger.audit()) == before  # plans change nothing
    status, printed = call("plan", "show", str(file))
    assert (status, "made     by ann, " in printed, "would retry  2 partitions" in printed) == (0, True, True)
    status, printed = call("plan", "apply", kept["id"], "--because", "first", "--actor", "ben")
    assert (status, "1 partition queued" in printed) == (0, True)
    status, printed = call("plan", "apply", str(file), "--because", "second", "--actor", "ben")
    assert (status, "partitions changed since the plan: 1 pending meanwhile" in printed) == (4, True)
    assert "already applied" not in printed
    assert [entry.because for entry in audit_entries(lake, "partition.retry")] == ["first"]
    status, printed = call("plan", "apply", kept["id"], "--because", "twice", "--actor", "ben", width=1000)
    (first,) = audit_entries(lake, "partition.retry")
    assert (status, f"the plan was already applied as sweep {first.what['sweep']}, see" in printed) == (4, True)
    status, printed = call("plan", "apply", str(file), "--because", "second", "--accept-drift", "skip", "--json")
    assert (status, json.loads(printed)["sweep"]["total"]) == (0, 2)
    said = json.loads(file.read_text())
    for change, says in (
        ({"count": 3}, "it was changed after it was made"),
        ({"redrive_plan": 99}, "it is not a plan of redrive"),
    ):
        file.write_text(json.dumps(said | change))
        status, printed = call("plan", "apply", str(file), "--because", "x")
        assert (status, says in printed) == (2, True)
    file.write_text("{")
    assert call("plan", "show", str(file))[0] == 2


@pytest.mark.req("O-2")
@pytest.mark.usefixtures("lake")
def test_a_plan_expires_and_is_for_one_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plan.json"
    call("state", "reprocess", "crm/orders", "--out", str(file))
    other = f"sqlite:///{tmp_path / 'other.db'}"
    open_ledger(other, migrate=True).close()
    status, printed = call("plan", "apply", str(file), "--because", "x", "--ledger", other)
    assert (status, "plan p-" in printed, "not for sqlite" in printed) == (4, True, True)
    monkeypatch.setattr(stored, "LIFE", timedelta(seconds=-1))
    call("state", "reprocess", "crm/orders", "--out", str(file))
    status, printed = call("plan", "apply", str(file), "--because", "x")
    assert (status, "has expired" in printed) == (4, True)
    assert call("plan", "show", str(file))[0] == 4
