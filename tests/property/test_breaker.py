"""A breaker opens soon in an outage after any traffic, and stays closed if few calls fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Breaker

SOON = 28
"""Number of calls, with the defaults."""


@pytest.mark.req("C-12")
@given(successes=st.integers(0, 5000), seconds=st.floats(0.0, 29.0), pause=st.floats(0.0, 0.05))
def test_a_total_outage_opens_the_breaker_within_tens_of_calls(successes: int, seconds: float, pause: float) -> None:
    breaker = Breaker()
    for number in range(successes):
        breaker.record(False, seconds * number / max(1, successes))
    opened = [breaker.record(True, seconds + pause * number) for number in range(SOON)]
    assert any(opened)
    assert breaker.state == "open"


@pytest.mark.req("C-12")
@given(
    successes=st.lists(st.integers(2, 30), min_size=1, max_size=300),
    step=st.floats(0.0001, 5.0),
    min_calls=st.integers(3, 100),
)
def test_the_breaker_stays_closed_if_at_most_a_third_of_calls_fails(successes: list[int], step: float, min_calls: int) -> None:
    breaker, now = Breaker(min_calls=min_calls), 0.0
    for many in successes:
        for failed in (*[False] * many, True):
            now += step
            assert not breaker.record(failed, now)
    assert breaker.state == "closed"


@pytest.mark.req("C-12")
@given(min_calls=st.integers(1, 200), failure_rate=st.floats(0.05, 1.0), successes=st.integers(0, 1000))
def test_any_breaker_opens_in_a_total_outage(min_calls: int, failure_rate: float, successes: int) -> None:
    breaker = Breaker(min_calls=min_calls, failure_rate=failure_rate)
    for _ in range(successes):
        breaker.record(False, 1.0)
    assert any(breaker.record(True, 1.0) for _ in range(3 * max(min_calls, 20) + 1))


def test_old_failures_do_not_open_the_breaker() -> None:
    breaker = Breaker()
    for _ in range(19):
        assert not breaker.record(True, 0.0)
    assert not any(breaker.record(True, 100.0) for _ in range(19))
