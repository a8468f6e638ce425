"""Each signal reaches one waiter of its id, in any order of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.batch.shared_poller import MAX_JITTER, Pace, Waiters

pytestmark = pytest.mark.req("G-10")
IDS = st.sampled_from("abc")
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), IDS),
        st.tuples(st.just("withdraw"), st.integers(0, 50)),
        st.tuples(st.just("arrive"), IDS),
    ),
    max_size=60,
)


@given(ACTS, st.integers(0, 5))
def test_each_signal_reaches_one_waiter_of_its_id(acts: list[tuple[str, int | str]], max_kept: int) -> None:
    waiters: Waiters[int, str, int] = Waiters(max_kept)
    waiting: dict[int, str] = {}
    delivered: list[int] = []
    arrived: dict[int, str] = {}
    for step, (act, what) in enumerate(acts):
        if act == "enter":
            given_ = waiters.add(step, str(what))
            found = [] if given_ is None else [given_]
            waiting[step] = str(what)
        elif act == "withdraw":
            waiters.remove(int(what))
            waiting.pop(int(what), None)
            found = []
        else:
            arrived[step] = str(what)
            found = waiters.deliver(str(what), [step])
        for delivery in found:
            assert waiting.pop(delivery.ticket) == arrived[delivery.signal] == delivery.id
            delivered.append(delivery.signal)
        assert len(waiters) == len(waiting)
        assert set(waiters.ids) == set(waiting.values())
        assert len(delivered) + waiters.kept + waiters.dropped == len(arrived), "every signal is accounted for"
        assert waiters.kept <= max_kept
    assert len(delivered) == len(set(delivered))
    for id_ in "abc":
        order = [signal for signal in delivered if arrived[signal] == id_]
        assert order == sorted(order)
    assert sorted(waiters.take_all()) == sorted(waiting)
    assert (len(waiters), waiters.ids) == (0, [])


@given(st.floats(0.001, 1), st.floats(1, 100), st.lists(st.booleans(), max_size=20), st.floats(0, 1))
def test_pace_stays_within_its_limits(fast: float, slow: float, polls: list[bool], draw: float) -> None:
    pace = Pace.fastest(fast, slow)
    for found in polls:
        before, pace = pace, pace.after_poll(has_signals=found)
        assert pace.interval == (fast if found else min(slow, 2 * before.interval))
        assert fast * (1 - MAX_JITTER) <= pace.wait(draw) <= slow
    assert pace.reset().interval == fast
