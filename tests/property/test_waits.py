"""Waits: bounds that hold for every policy, backoff, attempt and draw."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import RetryPolicy, backoff
from redrive.core.policy import exponential_wait

SECONDS = st.floats(0, 1e9)
DRAWS = st.floats(0, 1, exclude_max=True)
ATTEMPTS = st.integers(1, 100_000) | st.integers(1, 40)
SHARES = st.floats(0, 1)
ULP = 1 + 2**-50


@pytest.mark.req("R-4")
@given(st.builds(RetryPolicy, st.integers(1, 10**9), SECONDS, SECONDS, SECONDS), ATTEMPTS, DRAWS)
def test_a_wait_of_a_policy_equals_the_formula(policy: RetryPolicy, attempt: int, draw: float) -> None:
    wait = policy.wait(attempt, draw)
    exact = min(Fraction(policy.backoff_max), Fraction(policy.backoff_base) * 2 ** (attempt - 1))
    assert math.isclose(wait, exact + Fraction(policy.jitter) * Fraction(draw), rel_tol=1e-12, abs_tol=1e-300)
    assert 0 <= wait <= (policy.backoff_max + policy.jitter) * ULP


@pytest.mark.req("R-4")
@given(st.builds(RetryPolicy, st.just(3), SECONDS, SECONDS, SECONDS), ATTEMPTS)
def test_a_draw_of_zero_adds_nothing_and_no_draw_adds_more_than_the_jitter(policy: RetryPolicy, attempt: int) -> None:
    bare, most = policy.wait(attempt, 0.0), policy.wait(attempt, math.nextafter(1, 0))
    assert bare <= policy.backoff_max
    assert bare <= most <= (bare + policy.jitter) * ULP


@pytest.mark.req("R-4")
@given(st.builds(RetryPolicy, st.just(3), SECONDS, SECONDS, SECONDS), ATTEMPTS, DRAWS)
def test_waits_never_get_shorter(policy: RetryPolicy, attempt: int, draw: float) -> None:
    assert policy.wait(attempt, draw) <= policy.wait(attempt + 1, draw)


@given(st.floats(0, 1.7e308), st.integers(1, 100_000))
def test_doubling_is_exact_or_infinite(base: float, attempt: int) -> None:
    exact = Fraction(base) * 2 ** (attempt - 1)
    largest = Fraction(math.nextafter(math.inf, 0))
    assert exponential_wait(base, attempt) == (exact if exact <= largest else math.inf)


@pytest.mark.req("R-9")
@given(st.lists(SECONDS, min_size=1, max_size=5), SHARES, ATTEMPTS, DRAWS)
def test_a_step_is_spread_by_at_most_its_jitter(waits: list[float], jitter: float, attempt: int, draw: float) -> None:
    step = waits[min(attempt, len(waits)) - 1]
    assert step * (1 - jitter) / ULP <= backoff.steps(*waits, jitter=jitter)(attempt, draw) <= step * (1 + jitter) * ULP
    assert backoff.fixed(step, jitter=jitter)(attempt, draw) == backoff.steps(step, jitter=jitter)(1, draw)


@pytest.mark.req("R-9")
@given(st.floats(0, 1e300), st.floats(0.001, 1e9), SHARES, ATTEMPTS, DRAWS)
def test_doubling_stays_between_its_cap_and_the_jitter_above(
    base: float, cap: float, jitter: float, attempt: int, draw: float
) -> None:
    wait = backoff.doubling(base, cap=cap, jitter=jitter)(attempt, draw)
    assert 0 <= wait <= cap * (1 + jitter) * (1 + 1e-9)


@pytest.mark.req("R-9")
@given(st.floats(0, 1e300), st.floats(0.001, 1e9), SHARES, ATTEMPTS, DRAWS)
def test_powers_stay_within_their_cap_and_jitter(base: float, cap: float, jitter: float, attempt: int, draw: float) -> None:
    wait = backoff.powers(base, cap=cap, jitter=jitter)(attempt, draw)
    assert 0 <= wait <= cap * (1 + jitter) * ULP
    if base >= 1 and not jitter:
        assert wait >= min(base, cap)


@pytest.mark.req("R-9")
@given(SECONDS, st.floats(0.001, 1e9), ATTEMPTS, DRAWS)
def test_full_jitter_stays_below_the_doubled_base_and_the_cap(base: float, cap: float, attempt: int, draw: float) -> None:
    wait = backoff.full_jitter(base, cap=cap)(attempt, draw)
    assert 0 <= wait <= min(cap, exponential_wait(base, attempt))
    assert wait < cap


@pytest.mark.req("R-7", "R-1")
@given(st.builds(RetryPolicy, st.integers(1, 10**9), SECONDS, SECONDS, SECONDS, st.none() | st.floats(1e-9, 1e9)))
def test_a_policy_survives_a_mapping_and_the_environment(policy: RetryPolicy) -> None:
    fields = {name: getattr(policy, name) for name in ("max_attempts", "backoff_base", "backoff_max", "jitter", "timeout")}
    assert RetryPolicy.from_mapping(fields) == policy
    assert RetryPolicy.from_env("P", {f"P_{name.upper()}": str(value) for name, value in fields.items()}) == policy
