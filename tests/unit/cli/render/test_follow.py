"""`sweeps show --follow` and `backfill status --follow`: a line for each change, and Ctrl+C."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from redrive.cli.render import progress
from redrive.ledger import Ledger, NewJob
from tests.conformance.partitions.world import World
from tests.unit.cli.command import call, on_terminal

WHY: dict[str, Any] = {"actor": "ann", "because": "fixed"}


class Meanwhile:
    """A clock whose sleeps are filled: each runs the next function, as another process would."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        self._acts = iter(acts)

    def sleep(self, _seconds: float) -> None:
        next(self._acts)()


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def filled(*acts: Callable[[], object]) -> None:
        monkeypatch.setattr(progress, "clock_around", lambda: Meanwhile(*acts))

    return filled


@pytest.fixture
def swept_ledger(ledger: Ledger) -> Ledger:
    """Sweep 1 replays three dead letters, the first as its canary."""
    ledger.submit_many([NewJob("mail", str(each)) for each in range(3)])
    ledger.settle([lease.dead("attempts") for lease in ledger.claim({"mail": 3}, worker="w")])
    ledger.sweeps.begin("replay", [1, 2, 3], canary=1, **WHY)
    return ledger


def acts_of(ledger: Ledger) -> list[Callable[[], object]]:
    def canary_done() -> None:
        ledger.settle(ledger.claim({"mail": 1}, worker="w")[0].done())

    def step() -> None:
        ledger.sweeps.step(1)

    return [step, lambda: None, canary_done, step]


def test_a_pipe_gets_a_line_for_each_change(swept_ledger: Ledger, meanwhile: Callable[..., None]) -> None:
    meanwhile(*acts_of(swept_ledger))
    status, printed = call("sweeps", "show", "1", "--follow")
    lines = [line.partition(" UTC  ")[2] for line in printed.splitlines() if " UTC  " in line]
    *before, last = lines
    assert (status, before) == (
        0,
        [
            "running; 0 of 3 replayed, 3 left",
            "running; 1 of 3 replayed (1 in progress), 2 left",
            "running; 1 of 3 replayed (1 done), 2 left",
        ],
    )
    assert last.startswith("done: all enqueued, 2 jobs in progress; 3 of 3 replayed")
    assert "Sweep 1: replay" in printed


def test_json_is_one_document_for_each_change(swept_ledger: Ledger, meanwhile: Callable[..., None]) -> None:
    meanwhile(*acts_of(swept_ledger))
    status, printed = call("sweeps", "show", "1", "--follow", "--json")
    documents = [json.loads(line) for line in printed.splitlines()]
    assert status == 0
    assert [(one["sweep"]["state"], one["sweep"]["made"]) for one in documents] == [
        ("running", 0),
        ("running", 1),
        ("running", 1),
        ("done", 3),
    ]


def test_ctrl_c_ends_only_the_following(swept_ledger: Ledger, meanwhile: Callable[..., None]) -> None:
    meanwhile(lambda: swept_ledger.sweeps.step(1), interrupt)
    status, printed = call("sweeps", "show", "1", "-f")
    assert status == 130
    assert "stopped watching; sweep 1 continues\n  redrive sweeps show 1 --follow\n" in printed
    assert 'to stop the sweep: `redrive sweeps pause 1 --because "..."`' in printed
    assert "1 of 3 replayed" in printed
    assert "completed steps stay" not in printed


def test_an_ended_sweep_is_shown_immediately_at_a_terminal(url: str, swept_ledger: Ledger) -> None:
    swept_ledger.sweeps.move(1, "cancel", **WHY)
    status, printed = on_terminal("sweeps", "show", "1", "--follow", REDRIVE_LEDGER=url)
    assert (status, "cancelled" in printed, " UTC  cancelled" in printed) == (1, True, False)


def test_a_backfill_is_followed_in_the_same_way(lake: World, meanwhile: Callable[..., None]) -> None:
    meanwhile(lake.claim, interrupt)
    status, printed = call("backfill", "status", "3", "--follow")
    assert (status, "stopped watching; backfill 3 continues" in printed) == (130, True), printed
    assert len([line for line in printed.splitlines() if " UTC  running; " in line]) == 2
    meanwhile(lambda: lake.ledger.sweeps.move(3, "cancel", **WHY))
    status, printed = call("backfill", "status", "3", "--watch", "--json")
    assert (status, [json.loads(line)["sweep"]["state"] for line in printed.splitlines()]) == (1, ["running", "cancelled"])


def test_sweeps_show_follows_the_partitions_of_a_backfill(lake: World, meanwhile: Callable[..., None]) -> None:
    _, printed = call("sweeps", "show", "3")
    of_backfill = call("backfill", "status", "3")[1]
    assert printed.partition("started")[0] == of_backfill.partition("started")[0]
    assert "% done · accepted " in printed
    assert json.loads(call("sweeps", "show", "3", "--json")[1])["outcomes"] == []
    meanwhile(lake.claim, interrupt)
    status, printed = call("sweeps", "show", "3", "--follow")
    assert (status, "stopped watching; backfill 3 continues\n  redrive sweeps show 3 --follow" in printed) == (130, True)
    assert len([line for line in printed.splitlines() if "accepted, " in line and " queued, " in line]) == 2


@pytest.mark.usefixtures("lake")
def test_a_backfill_is_paused_and_resumed_as_a_sweep() -> None:
    status, printed = call("sweeps", "pause", "99", "--because", "x")
    assert status == 1
    assert "sweep 99: not found; `redrive sweeps list` lists sweeps, `redrive backfill list --all` lists backfills" in printed
    assert call("sweeps", "pause", "3", "--because", "x")[0] == 0
    status, printed = call("sweeps", "resume", "3", "--because", "x")
    assert (status, "Sweep 3 is running" in printed) == (0, True), printed
