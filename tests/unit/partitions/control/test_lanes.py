"""Fair share: no lane starves. Simulated with a clock that is a number."""

from __future__ import annotations

import random
from collections import Counter, deque
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.partitions.control.lanes import LATE_AFTER, MAX_UNSERVED, MIN_BACKFILL_PART, FairShare, WorkStream
from redrive.partitions.model import Lane
from redrive.partitions.store.sweeps import DEFAULT_SHARE

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
ROOM = {("crm", "orders"): 10**9}, {"crm": 10**9}


def stream(lane: Lane, many: int, *, sweep: int = 0, share: float = 0.15, source: str = "crm", due: datetime = NOW) -> WorkStream:
    return WorkStream(source, "orders", lane, sweep, [due] * many, share)


def simulate(
    arrivals: float, share: float, *, slots: int, ticks: int, retries: int = 0, every: timedelta = timedelta(seconds=1)
) -> tuple[list[int], Counter[str]]:
    """Simulate ticks with a number of slots: fresh work arrives for a part of them, beside a million keys of a backfill. Return
    the waits and the slots taken.
    """
    turns = FairShare(random.Random(7).random)
    fresh: deque[int] = deque()
    waits: list[int] = []
    taken: Counter[str] = Counter()
    left, owed = 1_000_000, 0.0
    for tick in range(ticks):
        owed += arrivals * slots
        fresh.extend([tick] * int(owed))
        owed -= int(owed)
        now = NOW + tick * every
        offers = [
            stream(Lane.FRESH, min(slots, len(fresh)), due=NOW + fresh[0] * every if fresh else now),
            stream(Lane.RETRY, min(slots, retries)),
            stream(Lane.BACKFILL, min(slots, left), sweep=1, share=share),
        ]
        chosen = turns.choose(offers, slots, *ROOM, now)
        waits += [tick - fresh.popleft() for _ in range(chosen[0])]
        left -= chosen[2]
        taken.update({lane.label: many for lane, many in zip(Lane, chosen, strict=True)})
    return waits, taken


@pytest.mark.req("P-10")
def test_fresh_work_at_nine_tenths_waits_no_longer_than_a_tick_beside_a_million_keys() -> None:
    waits, taken = simulate(0.9, 0.1, slots=100, ticks=400)
    assert sorted(waits)[int(len(waits) * 0.99)] <= 1
    assert taken["backfill"] >= 0.099 * taken.total()
    assert taken.total() == 40_000


@pytest.mark.req("P-10")
@pytest.mark.parametrize("slots", [20, 1])
@pytest.mark.parametrize("share", [DEFAULT_SHARE, 0.25])
def test_a_backfill_yields_to_fresh_work_of_nine_tenths(slots: int, share: float) -> None:
    """Together more than the capacity: fresh work is slightly late, and the backfill gets the rest."""
    waits, taken = simulate(0.9, share, slots=slots, ticks=1000)
    assert max(waits) <= LATE_AFTER.total_seconds() + 2
    assert taken["backfill"] > 0.099 * taken.total() > MIN_BACKFILL_PART * share * taken.total()
    assert taken.total() == 1000 * slots


@pytest.mark.req("P-10")
@pytest.mark.parametrize("slots", [10, 1])
def test_a_flood_of_fresh_work_does_not_starve_a_backfill(slots: int) -> None:
    """The backfill has its share as long as the others can wait, and then a third of it permanently."""
    _, taken = simulate(3.0, DEFAULT_SHARE, slots=slots, ticks=10 * 20, retries=1000, every=timedelta(milliseconds=50))
    assert _parts(taken) == {"fresh": 0.60, "retry": 0.25, "backfill": 0.15}
    _, taken = simulate(3.0, DEFAULT_SHARE, slots=slots, ticks=3000, retries=1000)
    assert _parts(taken) == {"fresh": 0.67, "retry": 0.28, "backfill": 0.05}


def _parts(taken: Counter[str]) -> dict[str, float]:
    return {lane: round(many / taken.total(), 2) for lane, many in taken.items()}


def test_programs_that_run_for_one_turn_keep_the_shares() -> None:
    dice = random.Random(3)
    taken: Counter[str] = Counter()
    for _ in range(3000):
        chosen = FairShare(dice.random).choose([stream(lane, 1) for lane in Lane], 1, *ROOM, NOW)
        taken[Lane(chosen.index(1)).label] += 1
    assert all(taken[lane.label] > 150 for lane in Lane)
    assert taken["fresh"] > taken["retry"] > taken["backfill"]


def test_unused_capacity_goes_to_other_lanes() -> None:
    turns = FairShare(random.Random(1).random)
    assert turns.choose([stream(Lane.BACKFILL, 500, sweep=1)], 300, *ROOM, NOW) == [300]
    assert turns.choose([stream(Lane.FRESH, 5), stream(Lane.BACKFILL, 500, sweep=1)], 100, *ROOM, NOW) == [5, 95]


def test_an_idle_lane_does_not_catch_up() -> None:
    turns = FairShare(random.Random(1).random)
    for _ in range(100):
        turns.choose([stream(Lane.BACKFILL, 100, sweep=1)], 100, *ROOM, NOW)
    fresh, backfill = turns.choose([stream(Lane.FRESH, 1000), stream(Lane.BACKFILL, 1000, sweep=1)], 100, *ROOM, NOW)
    assert 80 <= fresh <= 90
    assert fresh + backfill == 100


def test_sweeps_of_one_lane_take_turns_by_their_shares() -> None:
    turns = FairShare(random.Random(1).random)
    one, two = turns.choose(
        [stream(Lane.BACKFILL, 900, sweep=1, share=0.3), stream(Lane.BACKFILL, 900, sweep=2, share=0.1)], 400, *ROOM, NOW
    )
    assert 295 <= one <= 305
    assert one + two == 400


def test_a_lane_that_waits_too_long_is_next() -> None:
    """One slot that is free once in an hour: by its share alone a backfill would wait for six hours and more."""
    turns = FairShare(lambda: 0.0)
    order = []
    for hour in range(9):
        now = NOW + timedelta(hours=hour)
        chosen = turns.choose([stream(lane, 9) for lane in Lane], 1, *ROOM, now)
        order.append(Lane(chosen.index(1)))
    assert timedelta(hours=1) > MAX_UNSERVED
    assert all(lane in order[at : at + 4] for lane in Lane for at in range(6))


def test_the_oldest_goes_first_within_a_lane() -> None:
    turns = FairShare(random.Random(1).random)
    old, new = stream(Lane.RETRY, 5, source="a", due=NOW - timedelta(hours=1)), stream(Lane.RETRY, 5, source="b")
    assert turns.choose([new, old], 5, {("a", "orders"): 9, ("b", "orders"): 9}, {"a": 9, "b": 9}, NOW) == [0, 5]


@given(
    st.lists(st.tuples(st.sampled_from(Lane), st.integers(0, 20), st.integers(0, 3), st.sampled_from("ab")), max_size=8),
    st.integers(0, 30), st.integers(-2, 20), st.integers(-2, 20),
)  # fmt: skip
def test_no_limit_is_broken_and_no_slot_is_wasted(given_: list[tuple[Lane, int, int, str]], total: int, of: int, at: int) -> None:
    streams = [stream(lane, many, sweep=sweep, source=source) for lane, many, sweep, source in given_]
    datasets = {(source, "orders"): of for source in "ab"}
    chosen = FairShare(random.Random(0).random).choose(streams, total, datasets, dict.fromkeys("ab", at), NOW)
    taken = {source: sum(many for one, many in zip(streams, chosen, strict=True) if one.source == source) for source in "ab"}
    there = {source: sum(len(one.due_at) for one in streams if one.source == source) for source in "ab"}
    most = {source: max(0, min(there[source], of, at)) for source in "ab"}
    assert all(0 <= many <= len(one.due_at) for one, many in zip(streams, chosen, strict=True))
    assert all(taken[source] <= most[source] for source in "ab")
    assert sum(taken.values()) == min(total, sum(most.values()))
