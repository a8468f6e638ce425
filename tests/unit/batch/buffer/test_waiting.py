"""What waits in a send buffer, and which of it may go: decided without a clock and without a loop."""

from __future__ import annotations

import math

import pytest

from redrive.batch.buffer.waiting import Limits, Waiting

pytestmark = pytest.mark.req("G-4")


def waiting(batch: int = 3, held: int = 100, batch_bytes: float = math.inf, held_bytes: float = math.inf) -> Waiting[str, str]:
    sized = batch_bytes < math.inf or held_bytes < math.inf
    return Waiting(Limits(batch, held, batch_bytes, held_bytes), len if sized else None)


def enter(one: Waiting[str, str], *items: str) -> list[bool]:
    return [one.enter(item, item) for item in items]


def taken(one: Waiting[str, str]) -> list[str]:
    batch = one.take()
    return [] if batch is None else batch.items


def test_a_batch_goes_when_it_is_full() -> None:
    one = waiting()
    assert enter(one, "a", "b", "c", "d") == [False, False, True, True]
    assert taken(one) == ["a", "b", "c"]
    assert taken(one) == []
    assert len(one) == 1


def test_or_when_the_interval_is_over() -> None:
    one = waiting()
    enter(one, "a", "b")
    assert taken(one) == []
    one.late = True
    assert taken(one) == ["a", "b"]
    assert not one.late, "what comes next has an interval of its own"


def test_late_stays_until_all_that_was_there_has_gone() -> None:
    one = waiting(batch=2)
    enter(one, "a", "b", "c")
    one.late = True
    assert (taken(one), taken(one), one.late) == (["a", "b"], ["c"], False)


def test_or_when_nothing_more_will_come() -> None:
    one = waiting()
    enter(one, "a")
    one.closing = True
    assert taken(one) == ["a"]


def test_who_goes_takes_the_item_along() -> None:
    one = waiting()
    enter(one, "a", "b", "c", "d")
    assert one.withdraw("b")
    assert taken(one) == ["a", "c", "d"]
    assert not one.withdraw("a"), "in flight"
    assert not one.withdraw("x"), "never seen"


def test_more_than_it_holds_waits_outside_and_comes_in_as_there_is_room() -> None:
    one = waiting(batch=2, held=3)
    enter(one, "a", "b", "c", "d", "e")
    assert (one.held, len(one), one.full) == (3, 5, True)
    first = one.take()
    assert first is not None
    assert one.held == 3, "what is in flight is still held"
    assert taken(one) == ["c"], "it cannot grow: there is no room for another one"
    one.answered(first)
    assert one.held == 3
    assert taken(one) == ["d", "e"]


def test_who_waits_outside_can_go_too() -> None:
    one = waiting(held=1)
    enter(one, "a", "b", "c")
    assert one.withdraw("b")
    assert one.withdraw("a")
    one.late = True
    assert taken(one) == ["c"]


def test_nobody_passes_those_outside() -> None:
    one = waiting(held=1)
    enter(one, "a", "b")
    one.late = True
    first = one.take()
    assert first is not None
    enter(one, "c")
    one.answered(first)
    one.late = True
    assert taken(one) == ["b"]


def test_bytes_of_a_batch() -> None:
    one = waiting(batch=10, batch_bytes=5)
    assert enter(one, "aa", "bb", "cc") == [False, False, True]
    assert taken(one) == ["aa", "bb"], "the third would make it 6"
    assert taken(one) == []
    enter(one, "too large for any batch")
    assert taken(one) == ["cc"]
    assert taken(one) == ["too large for any batch"], "alone: the server decides"


def test_bytes_held() -> None:
    one = waiting(batch=1, held_bytes=4)
    enter(one, "aaa", "bb", "c")
    first = one.take()
    assert first is not None
    assert first.items == ["aaa"]
    assert (len(one), one.full) == (2, True), "in flight counts"
    assert taken(one) == []
    one.answered(first)
    assert (taken(one), taken(one)) == (["bb"], ["c"])
    enter(one, "more than it holds")
    assert taken(one) == [], "not while another one is held"


def test_an_item_larger_than_all_the_room_comes_in_alone() -> None:
    one = waiting(batch=1, held_bytes=4)
    enter(one, "more than it holds")
    assert taken(one) == ["more than it holds"]


@pytest.mark.parametrize("wrong", [-1, 1.5, "3", None, True])
def test_a_size_is_a_whole_number(wrong: object) -> None:
    one: Waiting[str, str] = Waiting(Limits(3, 3, 5, math.inf), lambda item: wrong)  # type: ignore[arg-type, return-value]
    with pytest.raises((TypeError, ValueError), match="the size of an item"):
        one.enter("a", "a")
    assert len(one) == 0


def test_all_that_is_left() -> None:
    one = waiting(batch=1, held=2)
    enter(one, "a", "b", "c", "d")
    flying = one.take()
    assert flying is not None
    left = one.clear()
    assert left.items == left.tickets == ["b", "c", "d"]
    assert (len(one), one.held) == (0, 1)
    one.answered(flying)
    assert one.held == 0
