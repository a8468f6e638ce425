"""A send queue keeps every item in one place, in its order and within the limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.batch.buffer.queue import QueuedBatch, QueueLimits, SendQueue

ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.integers(0, 9)),
        st.tuples(st.just("withdraw"), st.integers(0, 60)),
        st.tuples(st.sampled_from(["late", "take", "answer"]), st.just(0)),
    ),
    max_size=120,
)


@pytest.mark.req("G-4")
@given(
    ACTS,
    st.integers(1, 4),
    st.integers(1, 6),
    st.sampled_from([math.inf, 1, 10]),
    st.sampled_from([math.inf, 1, 20]),
    st.booleans(),
)
def test_every_item_is_in_one_place_and_keeps_its_order(
    acts: list[tuple[str, int]], batch_items: int, admitted: int, batch_bytes: float, admitted_bytes: float, sized: bool
) -> None:
    queue: SendQueue[int, int] = SendQueue(
        QueueLimits(batch_items, admitted, batch_bytes, admitted_bytes), (lambda item: item % 10) if sized else None
    )
    tickets = 0
    not_in_flight: set[int] = set()
    in_flight_batches: list[QueuedBatch[int, int]] = []
    order: list[int] = []
    for act, number in acts:
        if act == "enter":
            queue.add(tickets, tickets * 10 + number)
            not_in_flight.add(tickets)
            tickets += 1
        elif act == "withdraw":
            assert queue.withdraw(number) == (number in not_in_flight)
            not_in_flight.discard(number)
        elif act == "late":
            queue.is_due = True
        elif act == "take" and (taken := queue.take_batch()) is not None:
            assert 1 <= len(taken.items) <= batch_items
            assert [item // 10 for item in taken.items] == taken.tickets
            assert not sized or len(taken.items) == 1 or sum(item % 10 for item in taken.items) <= batch_bytes
            assert not_in_flight.issuperset(taken.tickets)
            not_in_flight -= set(taken.tickets)
            order += taken.tickets
            in_flight_batches.append(taken)
        elif act == "answer" and in_flight_batches:
            queue.finish(in_flight_batches.pop(0))
        in_flight = sum(len(batch.items) for batch in in_flight_batches)
        assert len(queue) == len(not_in_flight)
        assert in_flight <= queue.admitted <= admitted
    assert order == sorted(order)
    # No item is stuck: while closing, all of them are taken.
    queue.is_closing = True
    while not_in_flight or in_flight_batches:
        taken = queue.take_batch()
        if taken is None:
            queue.finish(in_flight_batches.pop(0))
        else:
            not_in_flight -= set(taken.tickets)
            in_flight_batches.append(taken)
    assert (len(queue), queue.admitted) == (0, 0)
