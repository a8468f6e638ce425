"""What sources bring waits for the ledger thread, and everybody learns what became of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from redrive.ledger.arrival import Arriving, Part, Received
from redrive.worker.intake import LINGER, SOON, Intake


def event(name: str, *kinds: str) -> Arriving:
    parts = tuple(Part(kind, f"event:shop:{name}:{kind}:v1", 5) for kind in kinds)
    return Arriving("shop", name, "paid", b"{}", None, None, None, None, None, None, len(parts), parts, ({}, {}))


def test_it_pokes_and_keeps_the_order() -> None:
    pokes: list[str] = []
    intake = Intake(lambda: pokes.append("poke"))
    assert not intake
    assert intake.until == float("inf")
    first = intake.put([event("a", "book", "mail"), event("b", "book")])
    second = intake.put([event("c")])
    assert (bool(intake), len(pokes)) == (True, 2)
    assert (dict(first.kinds), dict(second.kinds)) == ({"book": 2, "mail": 1}, {})
    assert intake.until == first.since + LINGER
    assert intake.waiting() == [first, second]
    found = intake.stored([first, second], lambda events: Received([True, False, True], []))
    assert found.fresh == [True, False, True]
    assert (intake.waiting(), first.wait(), first.fresh, second.fresh) == ([], True, [True, False], [True])


def test_what_cannot_be_written_is_whose_it_was() -> None:
    intake = Intake(lambda: None)
    first = intake.put([event("a")])
    with pytest.raises(OSError, match="full"):
        intake.stored([first], full)
    assert (first.wait(), intake.waiting()) == (False, [])


def full(_events: Sequence[Arriving]) -> Received:
    raise OSError("the disk is full")


def test_what_comes_together_is_written_together_up_to_a_hundred() -> None:
    intake = Intake(lambda: None)
    small = [intake.put([event(f"a{n}")]) for n in range(3)]
    large = intake.put([event(f"b{n}") for n in range(98)])
    assert intake.waiting() == small
    assert large.over is False


def test_closed_it_tells_those_who_wait_and_those_who_come() -> None:
    intake = Intake(lambda: None)
    early = intake.put([event("a")])
    intake.close()
    late = intake.put([event("b")])
    assert [early.wait(), late.wait()] == [False, False]
    assert intake.waiting() == []


def test_more_may_come_for_a_moment_and_then_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("redrive.worker.intake.monotonic", lambda: now[0])
    intake = Intake(lambda: None)
    assert not intake.comes
    first = intake.put([event("a", "book")], more=True)
    intake.stored([first], lambda _events: Received([True], []))
    assert (bool(intake), intake.comes, intake.next) == (False, True, 100.0 + SOON)
    now[0] += SOON
    assert (intake.comes, intake.next) == (False, math.inf)
    intake.put([event("b", "book")], more=True)
    intake.close()
    assert not intake.comes


def test_a_source_that_has_nothing_more_holds_nobody_up() -> None:
    pokes: list[str] = []
    intake = Intake(lambda: pokes.append("poke"))
    first = intake.put([event("a", "book")], more=True)
    intake.stored([first], lambda _events: Received([True], []))
    assert intake.comes
    intake.dry()
    assert (intake.comes, intake.next, len(pokes)) == (False, math.inf, 2)
    intake.dry()
    assert len(pokes) == 2, "there was nothing to tell"
