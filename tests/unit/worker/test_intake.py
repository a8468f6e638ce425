"""What sources bring waits for the ledger thread, and everybody learns what became of it."""

from __future__ import annotations

from redrive.ledger.arrival import Arriving, Part
from redrive.worker.intake import LINGER, Intake


def event(name: str, *kinds: str) -> Arriving:
    parts = tuple(Part(kind, f"event:shop:{name}:{kind}:v1", 5) for kind in kinds)
    return Arriving("shop", name, "paid", b"{}", None, None, None, None, None, len(parts), parts, ({}, {}))


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
    intake.leave([first])
    assert intake.waiting() == [second]
    first.end([True, False])
    assert (first.wait(), first.over, first.fresh) == (True, True, [True, False])


def test_closed_it_tells_those_who_wait_and_those_who_come() -> None:
    intake = Intake(lambda: None)
    early = intake.put([event("a")])
    intake.close()
    late = intake.put([event("b")])
    assert [early.wait(), late.wait()] == [False, False]
    assert intake.waiting() == []
