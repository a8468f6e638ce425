"""When a worker asks again though nobody told it of anything: pure."""

from __future__ import annotations

from redrive.worker.due import LOOK, POLL, Due


def test_it_looks_rarely_and_asks_when_something_falls_due() -> None:
    looks: list[int] = []
    due = Due(lambda: looks.append(1) or 2.0)  # type: ignore[func-returns-value]
    assert due.next(100.0) == 102.0
    assert due.next(100.1) == 102.0
    assert len(looks) == 1


def test_what_was_submitted_meanwhile_is_looked_at_soon() -> None:
    left = [None, 1.0]
    due = Due(lambda: left.pop(0))
    assert due.next(100.0) == 100.0 + POLL
    due.changed()
    assert due.next(100.1) == 100.0 + LOOK
    assert due.next(100.3) == 101.3


def test_what_this_worker_gave_back_is_known_without_a_look() -> None:
    due = Due(lambda: None)
    due.next(100.0)
    due.comes(100.05)
    assert due.next(100.01) == 100.05


def test_whether_something_is_due_is_looked_up_and_kept() -> None:
    left = [0.0, None, 1.0]
    due = Due(lambda: left.pop(0))
    assert due.ask(100.0)
    assert not due.ask(100.01)
    assert due.next(100.02) == 100.02 + POLL
    assert not due.ask(100.03)
    assert due.next(100.04) == 101.03
