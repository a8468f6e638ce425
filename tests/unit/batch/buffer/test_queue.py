"""The send queue: which items form the next batch."""

from __future__ import annotations

import math

import pytest

from redrive.batch.buffer.queue import QueueLimits, SendQueue

pytestmark = pytest.mark.req("G-4")


def make_queue(
    batch: int = 3, admitted: int = 100, batch_bytes: float = math.inf, admitted_bytes: float = math.inf
) -> SendQueue[str, str]:
    sized = batch_bytes < math.inf or admitted_bytes < math.inf
    return SendQueue(QueueLimits(batch, admitted, batch_bytes, admitted_bytes), len if sized else None)


def enter(queue: SendQueue[str, str], *items: str) -> list[bool]:
    return [queue.add(item, item) for item in items]


def take_items(queue: SendQueue[str, str]) -> list[str]:
    batch = queue.take_batch()
    return [] if batch is None else batch.items


def test_a_full_batch_is_taken() -> None:
    queue = make_queue()
    assert enter(queue, "a", "b", "c", "d") == [False, False, True, True]
    assert take_items(queue) == ["a", "b", "c"]
    assert take_items(queue) == []
    assert len(queue) == 1


def test_a_partial_batch_is_taken_when_due() -> None:
    queue = make_queue()
    enter(queue, "a", "b")
    assert take_items(queue) == []
    queue.is_due = True
    assert take_items(queue) == ["a", "b"]
    assert not queue.is_due, "later items have an interval of their own"


def test_the_queue_stays_due_until_it_is_empty() -> None:
    queue = make_queue(batch=2)
    enter(queue, "a", "b", "c")
    queue.is_due = True
    assert (take_items(queue), take_items(queue), queue.is_due) == (["a", "b"], ["c"], False)


def test_a_partial_batch_is_taken_while_closing() -> None:
    queue = make_queue()
    enter(queue, "a")
    queue.is_closing = True
    assert take_items(queue) == ["a"]


def test_a_withdrawn_item_is_not_sent() -> None:
    queue = make_queue()
    enter(queue, "a", "b", "c", "d")
    assert queue.withdraw("b")
    assert take_items(queue) == ["a", "c", "d"]
    assert not queue.withdraw("a"), "in flight"
    assert not queue.withdraw("x"), "never seen"


def test_items_above_the_limit_are_blocked_until_there_is_room() -> None:
    queue = make_queue(batch=2, admitted=3)
    enter(queue, "a", "b", "c", "d", "e")
    assert (queue.admitted, len(queue), queue.is_full) == (3, 5, True)
    first = queue.take_batch()
    assert first is not None
    assert queue.admitted == 3, "items in flight still count"
    assert take_items(queue) == ["c"], "it cannot grow: there is no room for item"
    queue.finish(first)
    assert queue.admitted == 3
    assert take_items(queue) == ["d", "e"]


def test_a_blocked_item_can_be_withdrawn() -> None:
    queue = make_queue(admitted=1)
    enter(queue, "a", "b", "c")
    assert queue.withdraw("b")
    assert queue.withdraw("a")
    queue.is_due = True
    assert take_items(queue) == ["c"]


def test_blocked_items_keep_their_order() -> None:
    queue = make_queue(admitted=1)
    enter(queue, "a", "b")
    queue.is_due = True
    first = queue.take_batch()
    assert first is not None
    enter(queue, "c")
    queue.finish(first)
    queue.is_due = True
    assert take_items(queue) == ["b"]


def test_a_batch_is_limited_in_bytes() -> None:
    queue = make_queue(batch=10, batch_bytes=5)
    assert enter(queue, "aa", "bb", "cc") == [False, False, True]
    assert take_items(queue) == ["aa", "bb"], "the third would make it 6"
    assert take_items(queue) == []
    enter(queue, "too large for any batch")
    assert take_items(queue) == ["cc"]
    assert take_items(queue) == ["too large for any batch"], "alone: the server decides"


def test_admitted_items_are_limited_in_bytes() -> None:
    queue = make_queue(batch=1, admitted_bytes=4)
    enter(queue, "aaa", "bb", "c")
    first = queue.take_batch()
    assert first is not None
    assert first.items == ["aaa"]
    assert (len(queue), queue.is_full) == (2, True), "in flight counts"
    assert take_items(queue) == []
    queue.finish(first)
    assert (take_items(queue), take_items(queue)) == (["bb"], ["c"])
    enter(queue, "more than it holds")
    assert take_items(queue) == [], "not while another item is admitted"


def test_an_item_above_the_byte_limit_is_admitted_alone() -> None:
    queue = make_queue(batch=1, admitted_bytes=4)
    enter(queue, "more than it holds")
    assert take_items(queue) == ["more than it holds"]


@pytest.mark.parametrize("wrong", [-1, 1.5, "3", None, True])
def test_a_size_is_a_whole_number(wrong: object) -> None:
    queue: SendQueue[str, str] = SendQueue(QueueLimits(3, 3, 5, math.inf), lambda item: wrong)  # type: ignore[arg-type, return-value]
    with pytest.raises((TypeError, ValueError), match="the size of an item"):
        queue.add("a", "a")
    assert len(queue) == 0


def test_take_all_leaves_only_items_in_flight() -> None:
    queue = make_queue(batch=1, admitted=2)
    enter(queue, "a", "b", "c", "d")
    flying = queue.take_batch()
    assert flying is not None
    left = queue.take_all()
    assert left.items == left.tickets == ["b", "c", "d"]
    assert (len(queue), queue.admitted) == (0, 1)
    queue.finish(flying)
    assert queue.admitted == 0
