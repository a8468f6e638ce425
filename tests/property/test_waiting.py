"""A send buffer's items: whatever comes, goes and is answered, each is in one place, in its order, within its limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.batch.buffer.waiting import Batch, Limits, Waiting

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
def test_each_item_is_in_one_place_and_comes_in_its_order(
    acts: list[tuple[str, int]], batch: int, held: int, batch_bytes: float, held_bytes: float, sized: bool
) -> None:
    waiting: Waiting[int, int] = Waiting(
        Limits(batch, held, batch_bytes, held_bytes), (lambda item: item % 10) if sized else None
    )
    tickets = 0
    here: set[int] = set()
    flying: list[Batch[int, int]] = []
    order: list[int] = []
    for act, number in acts:
        if act == "enter":
            waiting.enter(tickets, tickets * 10 + number)
            here.add(tickets)
            tickets += 1
        elif act == "withdraw":
            assert waiting.withdraw(number) == (number in here)
            here.discard(number)
        elif act == "late":
            waiting.late = True
        elif act == "take" and (taken := waiting.take()) is not None:
            assert 1 <= len(taken.items) <= batch
            assert [item // 10 for item in taken.items] == taken.tickets
            assert not sized or len(taken.items) == 1 or sum(item % 10 for item in taken.items) <= batch_bytes
            assert here.issuperset(taken.tickets)
            here -= set(taken.tickets)
            order += taken.tickets
            flying.append(taken)
        elif act == "answer" and flying:
            waiting.answered(flying.pop(0))
        in_flight = sum(len(one.items) for one in flying)
        assert len(waiting) == len(here)
        assert in_flight <= waiting.held <= held
    assert order == sorted(order)
    # Nothing is stuck: answered and due, all of it goes.
    waiting.closing = True
    while here or flying:
        taken = waiting.take()
        if taken is None:
            waiting.answered(flying.pop(0))
        else:
            here -= set(taken.tickets)
            flying.append(taken)
    assert (len(waiting), waiting.held) == (0, 0)
