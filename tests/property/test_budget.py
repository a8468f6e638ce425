"""Budget and breaker: invariants after any history of calls."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Breaker, Budget
from redrive.core.breaker import SLOTS
from redrive.core.fault import Kind

KINDS: list[Kind] = ["transient", "throttled", "timeout"]
ACTS = st.lists(st.sampled_from(KINDS) | st.just("success"), max_size=200)
WHOLE = st.integers(0, 100)


@pytest.mark.req("C-9")
@given(st.integers(0, 1000), WHOLE, WHOLE, WHOLE, ACTS)
def test_tokens_stay_between_zero_and_capacity_and_are_never_invented(
    capacity: int, cost: int, throttled: int, refill: int, acts: list[str]
) -> None:
    budget = Budget(capacity=capacity, cost=cost, throttled_cost=throttled, refill=refill, floor=0)
    paid, earned = 0.0, 0
    for act in acts:
        before = budget.left
        assert budget.below_capacity == (before < capacity)
        if act == "success":
            budget.refund()
            earned += refill
            assert budget.left == min(capacity, before + refill)
            continue
        kind: Kind = "throttled" if act == "throttled" else "transient"
        took = budget.spend(kind)
        price = throttled if kind == "throttled" else cost
        assert (took is None) == (before < price)
        assert budget.left == before - (took or 0)
        paid += took or 0
    assert 0 <= budget.left <= capacity
    assert paid <= capacity + earned


@pytest.mark.req("C-9")
@given(st.floats(0.1, 100), st.lists(st.floats(0, 100), min_size=1, max_size=100))
def test_the_floor_never_allows_more_than_its_rate(floor: float, moments: list[float]) -> None:
    budget = Budget(capacity=0, floor=floor)
    moments.sort()
    spared = [now for now in moments if budget.allow_by_floor(now)]
    assert spared[0] == moments[0]  # the first is always allowed
    assert all(later - earlier >= 1 / floor * (1 - 1e-9) for earlier, later in pairwise(spared))
    assert budget.denied == len(moments) - len(spared)


@pytest.mark.req("C-12")
@given(
    st.fractions(min_value=0, max_value=1, max_denominator=100).filter(bool),
    st.integers(1, 60),
    st.lists(st.booleans(), max_size=120),
)
def test_a_breaker_opens_exactly_at_the_failure_rate(rate: Fraction, least: int, fates: list[bool]) -> None:
    breaker = Breaker(failure_rate=float(rate), min_calls=least)
    failures = 0
    for calls, failed in enumerate(fates, 1):
        failures += failed
        opened = breaker.record(failed, 1.0)
        assert opened == (failed and calls >= least and failures / calls >= breaker.failure_rate)
        if opened:
            break


@pytest.mark.req("C-12")
@given(st.lists(st.tuples(st.sampled_from(["allow", "fail", "well", "cancel"]), st.floats(-1000, 1000)), max_size=80))
def test_any_breaker_closes_again_in_time(history: list[tuple[str, float]]) -> None:
    breaker, now = Breaker(min_calls=2, window=20, open_for=10), 10_000.0
    latest = now
    for act, passed in history:  # the clock jumps backwards too
        now += passed
        latest = max(latest, now)
        if act == "allow":
            assert 0 <= breaker.allow(now) <= 10
        elif act == "cancel":
            breaker.abandon()
        else:
            breaker.record(act == "fail", now)
        slots = [slot for slot, _, _ in breaker._slots]
        assert slots == sorted(set(slots))
        assert len(slots) <= SLOTS
        assert all(0 <= failures <= calls for _, calls, failures in breaker._slots)
    assert breaker.allow(latest + 10.001) == 0.0
