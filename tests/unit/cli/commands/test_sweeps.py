"""`redrive sweeps`: progress, canary, control."""

from __future__ import annotations

import re

import pytest

from redrive.ledger import Ledger
from tests.unit.cli.command import call
from tests.unit.cli.conftest import LONG


@pytest.mark.req("M-4")
def test_a_failed_canary_is_shown_with_its_error(busy: Ledger) -> None:
    asked = ("dead", "replay", "--kind", "crm.sync", "--error", "503", "--because", "fixed", "--yes", "--max", "9")
    assert call(*asked, "--canary", "1", "--detach")[0] == 0
    busy.sweeps.step(2)
    assert "running: 0 of 1 done" in call("sweeps", "show", "2")[1]
    waiting = busy.claim({"crm.sync": 9}, worker="w")
    canary = next(one.job_id for one in busy.sweeps.items(2) if one.job_id)
    busy.settle(next(lease for lease in waiting if lease.job_id == canary).again(600, error="503 again", reason="failed"))
    printed = " ".join(call("sweeps", "show", "2")[1].split())
    assert "failed: 1 of 1 (0 done, 0 dead, 1 retry scheduled); 503 again" in printed
    assert "retry scheduled" in printed
    busy.sweeps.step(2)
    assert "halted: canary failed, 1 of the first 1: 503 again" in " ".join(call("sweeps", "show", "2")[1].split())


def _halt_by_canary(ledger: Ledger) -> int:
    """Return a sweep of two dead letters, whose canary of one has failed again."""
    dead = [letter.id for letter in ledger.dead_letters(limit=50) if letter.status == "pending"][:2]
    begun = ledger.sweeps.begin("replay", dead, actor="ann", because="fixed", canary=1)
    (job_id,) = ledger.sweeps.step(begun.id).done.values()
    kinds = {"crm.sync": 20, LONG: 20}
    lease = next(lease for lease in ledger.claim(kinds, worker="w") if lease.job_id == job_id)
    ledger.settle(lease.dead("attempts", error="still broken"))
    assert ledger.sweeps.step(begun.id).sweep.state == "halted"
    return begun.id


@pytest.mark.req("M-4")
def test_resume_after_a_failed_canary_asks_for_a_confirmation(busy: Ledger) -> None:
    sweep_id = str(_halt_by_canary(busy))
    asked = ("sweeps", "resume", sweep_id, "--because", "fixed now")
    status, printed = call(*asked)
    assert status == 2
    assert "canary failed, 1 of the first 1: still broken; resuming replays the other 1 dead letter" in printed
    assert "without another canary" in printed
    assert "pass --yes --max 1 to replay 1. Nothing was changed" in printed
    assert f"{sweep_id} is halted" in call("sweeps", "pause", sweep_id, "--because", "x")[1]
    status, printed = call(*asked, "--yes", "--max", "1")
    assert status == 0
    assert f"Sweep {sweep_id} is done: 2 of 2 replayed (1 in progress, 1 dead again), 0 left" in printed
    assert f"→ redrive sweeps show {sweep_id}" in printed


def test_an_older_sweep_shows_that_its_jobs_failed_again_and_were_replayed(busy: Ledger) -> None:
    first = _halt_by_canary(busy)
    assert "dead again " in call("sweeps", "show", str(first))[1]
    dead_id = busy.sweeps.items(first)[0].dead_id
    assert call("dead", "replay", str(dead_id), "--because", "once more")[0] == 0
    printed = call("sweeps", "show", str(first))[1]
    assert "dead again, replayed again" in printed
    assert "discarded" not in printed


def test_a_halted_sweep_is_a_finding_and_suggests_to_cancel_first(busy: Ledger) -> None:
    sweep_id = _halt_by_canary(busy)
    shown = call("sweeps", "show", str(sweep_id))[1]
    assert shown.index(f"redrive sweeps cancel {sweep_id}") < shown.index(f"redrive sweeps resume {sweep_id}")
    for command in ("doctor", "overview"):
        printed = " ".join(call(command)[1].split())
        assert f"Sweep {sweep_id} (replay): halted, canary failed, 1 of the first 1: still broken" in printed
        assert "1 dead letter left" in printed
        assert f"redrive sweeps show {sweep_id}" in printed
    assert call("sweeps", "cancel", str(sweep_id), "--because", "fix first")[0] == 0
    assert "(replay): halted" not in call("doctor")[1]


@pytest.mark.req("M-4")
def test_a_sweep_stores_canary_and_rate_and_is_controlled(busy: Ledger) -> None:
    asked = ("dead", "replay", "--kind", "crm.sync", "--error", "503", "--because", "fixed", "--yes", "--max", "9")
    status, printed = call(*asked, "--canary", "1", "--rate", "5", "--detach")
    assert (status, printed.splitlines()[-1]) == (
        0, "Sweep 2 started; workers process it. Progress: `redrive sweeps show 2`",
    )  # fmt: skip
    assert call("sweeps", "list")[1].splitlines()[1].split()[:3] == ["2", "replay", "running"]
    assert "canary" in call("sweeps", "show", "2")[1]
    assert call("sweeps", "pause", "2", "--because", "wait")[:2] == (0, "Sweep 2 is paused: 0 of 2 replayed, 2 left\n")
    assert re.search(r"^Paused by \S+, .* UTC: wait$", call("sweeps", "show", "2", width=160)[1], re.MULTILINE)
    assert call("sweeps", "pause", "2", "--because", "wait")[0] == 1
    assert call("sweeps", "resume", "2", "--because", "go", "--detach")[0] == 0
    assert call("sweeps", "cancel", "2", "--because", "never mind")[:2] == (0, "Sweep 2 is cancelled: 0 of 2 replayed, 2 left\n")
    assert call("sweeps", "show", "9")[0] == 1
    said = [(entry.action, entry.because) for entry in busy.audit()[-4:]]
    assert said == [("dead.replay", "fixed"), ("sweep.pause", "wait"), ("sweep.resume", "go"), ("sweep.cancel", "never mind")]


def test_a_stopped_sweep_prints_the_next_commands(busy: Ledger) -> None:
    printed = call("sweeps", "show", "1")[1]
    assert '→ redrive sweeps resume 1 --detach --because "..."\n→ redrive sweeps cancel 1 --because "..."' in printed
    assert call("sweeps", "cancel", "1", "--because", "not needed")[0] == 0
    printed = call("sweeps", "show", "1")[1]
    assert ("not started" in printed, "waiting" in printed, "redrive sweeps" in printed) == (True, False, False), printed


def test_sweeps_list_reports_when_it_is_cut(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.sweeps.begin("replay", [], actor="ann", because="x")
    assert "Showing 2 of 3; use --limit for more." in call("sweeps", "list", "--limit", "2")[1]
    assert "Showing" not in call("sweeps", "list", "--limit", "3")[1]
