"""`redrive backfill` on a ledger, and on an app that knows its datasets."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from redrive.cli.commands.partitions.render import LANE_COMMANDS
from redrive.partitions.model import LANE_NAMES
from tests.conformance.partitions.world import World
from tests.unit.cli.command import call


@pytest.mark.req("O-3")
@pytest.mark.req("P-10")
def test_a_backfill_is_planned_applied_and_controlled(lake: World) -> None:
    days = ("--since", "2025-01-01", "--until", "2025-01-31")
    status, printed = call("backfill", "plan", "crm/orders", *days, "--customer-id", "c0", "--share", "0.3")
    assert status == 0
    assert "crm/orders × 1 customer × 31 days = 31, newest day first" in printed
    name = re.search(r"Plan (p-\w+)", printed)[1]  # type: ignore[index]
    status, printed = call("backfill", "apply", name, "--because", "history", "--yes", "--max", "10")
    assert (status, "--max 10: 31 match; nothing was changed" in printed) == (1, True)
    status, printed = call("backfill", "apply", name, "--because", "history", "--yes", "--max", "31")
    assert (status, "Backfill 4 started" in printed) == (0, True)
    status, printed = call("backfill", "apply", name, "--because", "twice", "--yes", "--max", "31")
    assert (status, "sweep 4 (running) has 31 of them" in printed) == (1, True)
    status, printed = call("backfill", "plan", "crm/orders", *days, "--customer-id", "c0")
    assert (status, "backfill 4 has some of these partitions" in printed) == (1, True)
    status, printed = call(
        "backfill", "apply", "crm/orders", *days, "--customer-id", "c1", "--because", "x", "--yes", "--max", "31"
    )
    assert (status, "Backfill 5 started" in printed) == (0, True)
    printed = call("backfill", "status", "4")[1]
    assert "crm/orders × 1 customer × 2025-01-01 to 2025-01-31 = 31" in printed
    assert "30% while other work is queued" in printed
    assert call("backfill", "share", "4", "0.5", "--because", "hurry")[1] == "Backfill 4: share 50% while other work is queued\n"
    assert call("backfill", "share", "4", "5", "--because", "hurry")[0] == 2
    assert call("backfill", "pause", "4", "--because", "slow")[1] == "Backfill 4 is paused: 31 of 31 not started\n"
    assert call("backfill", "resume", "4", "--because", "fast")[0] == 0
    assert call("backfill", "cancel", "4", "--because", "enough")[0] == 0
    status, printed = call("backfill", "cancel", "4", "--because", "enough")
    assert (status, "backfill 4 is already cancelled" in printed) == (1, True)
    for arguments in (("status",), ("pause", "--because", "x"), ("cancel", "--because", "x")):
        status, printed = call("backfill", arguments[0], "99", *arguments[1:])
        assert (status, "backfill 99: not found; `redrive backfill list --all` lists all" in printed) == (1, True)
    status, printed = call("backfill", "status", "4", "--follow")
    assert (status, "cancelled" in printed) == (1, True)
    assert [one["id"] for one in json.loads(call("backfill", "list", "--json")[1])] == [5, 4, 3, 1]
    assert "Showing 3 of 4; use --limit for more." in call("backfill", "list", "--limit", "3")[1]
    assert "Showing" not in call("backfill", "list", "--limit", "4")[1]
    assert len(lake.claim(worker="w9")) > 0


def _halt_by_canary(lake: World) -> str:
    """Return a backfill of ten partitions, whose canary of two was rejected for good."""
    days = ("--since", "2025-01-01", "--until", "2025-01-10", "--customer-id", "c0", "--canary", "2")
    assert call("backfill", "apply", "crm/orders", *days, "--because", "history", "--yes", "--max", "10")[0] == 0
    lake.reject(*(lease for lease in lake.claim() if lease.sweep_id == 4), final=True)
    lake.claim()
    return "4"


@pytest.mark.req("P-10")
def test_resume_after_a_failed_canary_asks_for_a_confirmation(lake: World) -> None:
    sweep_id = _halt_by_canary(lake)
    command = ("backfill", "resume", sweep_id, "--because", "source is back")
    status, printed = call(*command, width=200)
    assert status == 2
    assert "backfill 4: canary failed, 2 of the first 2; resuming starts the other 8 partitions without another canary" in printed
    assert "redrive backfill cancel 4" in printed
    assert "pass --yes --max 8 to start 8" in printed
    assert "halted" in call("backfill", "status", sweep_id)[1]
    assert call(*command, "--yes", "--max", "7")[0] == 1
    assert call("sweeps", "resume", sweep_id, "--because", "x", "--detach")[0] == 2
    assert [lease for lease in lake.claim() if lease.sweep_id == 4] == []
    assert call(*command, "--yes", "--max", "8")[1].startswith("Backfill 4 is running: 8 of 10 not started\n")


@pytest.mark.req("P-10")
@pytest.mark.usefixtures("lake")
def test_a_customer_without_partitions_is_reported() -> None:
    days = ("--since", "2025-01-01", "--until", "2025-01-31")
    status, printed = call("backfill", "plan", "crm/orders", *days, "--customer-id", "c0", "--customer-id", "nobody", width=160)
    assert (status, "customer nobody: no partition of crm/orders so far; all would be new" in printed) == (0, True)
    assert "customer c0" not in printed
    printed = call("backfill", "plan", "crm/orders", *days, "--customer-id", "nobody", "--json")[1]
    assert json.loads(printed)["plan"]["unknown_customers"] == ["nobody"]


APP = """
from redrive import App
from redrive.partitions import row_count

app = App("sqlite:///{folder}/lake.db", stores={{"raw": {{"type": "local", "options": {{"root": "{folder}/raw"}}}}}})

@app.dataset("crm", "orders", raw="raw", customers=["acme", "globex"], checks=[row_count(min=1)])
def orders(partition, out):
    out.rows([{{"n": 1}}])
"""


@pytest.mark.req("P-10")
@pytest.mark.req("O-1")
def test_the_app_names_datasets_and_customers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake_of_state.py").write_text(APP.format(folder=tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    here = ("--ledger", "lake_of_state:app")
    days = ("--since", "2025-01-01", "--until", "2025-01-31")
    assert call("ledger", "migrate", *here)[0] == 0
    assert call("state", "inspect", *here)[1].startswith("No partitions.")
    status, printed = call("backfill", "plan", "crm/order", *days, *here)
    assert (status, "unknown query 'order' of source 'crm' (did you mean 'orders'?); known: orders" in printed) == (2, True)
    status, printed = call("backfill", "plan", "crm/orders", *days, *here)
    assert (status, "crm/orders × 2 customers × 31 days = 62, newest day first" in printed) == (0, True)
    one = ("--customer-id", "acne", "--customer-id", "globex")
    said = "unknown customer 'acne' (did you mean 'acme'?) of crm/orders; known: acme, globex; add new customers to customers="
    for verb in (("plan",), ("apply", "--because", "x", "--yes", "--max", "62")):
        status, printed = call("backfill", verb[0], "crm/orders", *verb[1:], *days, *here, *one, width=200)
        assert (status, said in printed) == (2, True)
        assert "globex'" not in printed  # the app knows them
    tomorrow = (datetime.now(timezone.utc) + timedelta(days=2)).date()
    late = ("--since", "2025-01-01", "--until", str(tomorrow))
    status, printed = call("backfill", "plan", "crm/orders", *late, *here, width=200)
    assert (status, f"{tomorrow} is in the future; the last day to extract is " in printed) == (2, True)
    assert "(today in UTC+14)" in printed
    status, printed = call(
        "backfill", "apply", "crm/orders", *days, *here, "--because", "x", "--yes", "--max", "62", "--share", "0.3"
    )
    assert (status, "Backfill 1 started" in printed) == (0, True)
    printed = call("state", "explain", "crm/acme/orders/2025-01-07", *here, width=120)[1]
    assert "not queued yet by sweep 1 (backfill, running): 0 of 62 partitions are queued" in printed.lower()
    health = json.loads(call("doctor", *here, "--json")[1])
    assert (health["findings"], health["checked"][-1]) == ([], "raw data")


def test_every_lane_has_a_command_that_lists_it() -> None:
    assert tuple(LANE_COMMANDS) == LANE_NAMES
    assert all(f"--lane {lane}`" in command for lane, command in LANE_COMMANDS.items())
