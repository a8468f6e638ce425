"""Breaker: opens at a failure rate, allows a probe, and closes on its success."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any

import pytest

from redrive import Breaker


def calls(breaker: Breaker, failed: int, well: int, now: float = 0.0) -> bool:
    """Make good calls, then failed ones. Return whether the last of them opened the breaker."""
    for _ in range(well):
        assert not breaker.record(False, now)
    return [breaker.record(True, now) for _ in range(failed)][-1]


def state(breaker: Breaker) -> str:
    """A function, because type checkers assume that an attribute keeps its value."""
    return breaker.state


def open_breaker(now: float = 100.0, open_for: float = 10) -> Breaker:
    breaker = Breaker(min_calls=1, open_for=open_for)
    assert breaker.record(True, now)
    return breaker


@pytest.mark.req("C-12")
def test_the_default_numbers() -> None:
    breaker = Breaker()
    assert (breaker.failure_rate, breaker.window, breaker.min_calls, breaker.open_for) == (0.5, 30, 20, 10)
    assert state(breaker) == "closed"
    assert breaker.allow(0.0) == 0.0
    assert repr(breaker) == "Breaker(closed, failure_rate=0.5, window=30)"


@pytest.mark.req("C-12")
def test_the_breaker_opens_at_the_failure_rate_and_not_below() -> None:
    below, at = Breaker(), Breaker()
    assert not calls(below, failed=9, well=11)
    assert state(below) == "closed"
    assert calls(at, failed=10, well=10)
    assert state(at) == "open"
    assert repr(at) == "Breaker(open, failure_rate=0.5, window=30)"


@pytest.mark.req("C-12")
@pytest.mark.parametrize(
    ("rate", "failed", "of"), [(0.55, 11, 20), (0.07, 7, 100), (0.1, 3, 30), (0.29, 29, 100), (0.57, 57, 100), (1, 20, 20)]
)
def test_the_failure_rate_is_compared_exactly(rate: float, failed: int, of: int) -> None:
    assert calls(Breaker(failure_rate=rate, min_calls=of), failed, of - failed)


@pytest.mark.req("C-12")
def test_the_breaker_needs_min_calls_to_open() -> None:
    breaker = Breaker(min_calls=5)
    assert not calls(breaker, failed=4, well=0)
    assert breaker.record(True, 0.0)
    assert not calls(Breaker(min_calls=2), failed=1, well=0)
    assert calls(Breaker(min_calls=1), failed=1, well=0)


@pytest.mark.req("C-12")
def test_a_success_never_opens_the_breaker() -> None:
    breaker = Breaker(min_calls=5)
    assert not calls(breaker, failed=4, well=0)
    assert not breaker.record(False, 0.0)
    assert state(breaker) == "closed"
    assert breaker.record(True, 0.0)


@pytest.mark.req("C-12")
def test_calls_outside_the_window_do_not_count() -> None:
    breaker = Breaker(window=30, min_calls=4)
    calls(breaker, failed=3, well=0, now=0.0)
    assert not breaker.record(True, 30.0)
    assert not breaker.record(True, 59.0)
    assert not breaker.record(True, 59.9)
    assert breaker.record(True, 59.95)


@pytest.mark.req("C-12")
def test_calls_within_the_window_add_up() -> None:
    breaker = Breaker(window=30, min_calls=4)
    assert [breaker.record(True, now) for now in (0.0, 10.0, 20.0, 29.9)] == [False, False, False, True]


@pytest.mark.req("C-12")
def test_old_successes_do_not_hide_new_failures() -> None:
    breaker = Breaker(window=30, min_calls=4)
    for _ in range(1000):
        breaker.record(False, 0.0)
    assert calls(breaker, failed=4, well=0, now=31.0)


@pytest.mark.req("C-12")
def test_memory_is_limited_to_the_window() -> None:
    breaker = Breaker(window=10, failure_rate=1)
    for now in range(1000):
        breaker.record(False, float(now))
    assert len(breaker._slots) == 10


@pytest.mark.req("C-12")
def test_an_open_breaker_allows_no_call_and_returns_the_wait() -> None:
    breaker = open_breaker(100.0)
    assert [breaker.allow(now) for now in (100.0, 104.0, 109.5)] == [10.0, 6.0, 0.5]
    assert state(breaker) == "open"


@pytest.mark.req("C-12")
def test_a_successful_probe_closes_the_breaker() -> None:
    breaker = open_breaker(100.0)
    assert breaker.allow(110.0) == 0.0
    assert state(breaker) == "probing"
    assert [breaker.allow(now) for now in (110.0, 111.0)] == [10.0, 9.0]
    assert breaker.record(False, 111.0)
    assert state(breaker) == "closed"
    assert breaker.allow(111.0) == 0.0


@pytest.mark.req("C-12")
def test_a_failed_probe_keeps_the_breaker_open_for_the_full_time() -> None:
    breaker = open_breaker(100.0)
    breaker.allow(112.0)
    assert not breaker.record(True, 113.0)  # it was already open
    assert state(breaker) == "open"
    assert breaker.allow(113.0) == 10.0
    assert breaker.allow(122.5) == 0.5
    assert breaker.allow(123.0) == 0.0


@pytest.mark.req("C-12")
def test_a_closed_breaker_starts_a_new_window() -> None:
    breaker = Breaker(min_calls=3, open_for=10)
    calls(breaker, failed=3, well=0, now=0.0)
    breaker.allow(10.0)
    breaker.record(False, 10.0)
    assert not calls(breaker, failed=2, well=0, now=10.0)
    assert breaker.record(True, 10.0)


@pytest.mark.req("C-12")
def test_a_lost_probe_is_replaced_after_open_for() -> None:
    breaker = open_breaker(100.0)
    assert breaker.allow(110.0) == 0.0
    assert breaker.allow(119.9) > 0
    assert breaker.allow(120.0) == 0.0
    assert state(breaker) == "probing"
    assert breaker.allow(121.0) == 9.0


@pytest.mark.req("C-12")
@pytest.mark.parametrize("now", [110.0, 110.1, 1234.567, 0.1 + 0.2 + 200, 1e9 + 0.3])
def test_a_cancelled_probe_is_replaced_immediately(now: float) -> None:
    breaker = open_breaker(100.0, open_for=9.7)
    assert breaker.allow(now) == 0.0
    breaker.abandon()
    assert state(breaker) == "open"
    assert breaker.closed_for(now) == 0.0
    assert breaker.allow(now) == 0.0
    assert state(breaker) == "probing"
    assert breaker.allow(now) > 0


@pytest.mark.req("C-12")
def test_a_cancelled_call_changes_nothing_without_a_probe() -> None:
    closed, still_open = Breaker(), open_breaker(100.0)
    closed.abandon()
    still_open.abandon()
    assert state(closed) == "closed"
    assert still_open.allow(101.0) == 9.0


@pytest.mark.req("C-12")
def test_calls_in_progress_when_the_breaker_opened_change_nothing() -> None:
    breaker = open_breaker(100.0)
    assert breaker.record(False, 101.0) is False
    assert breaker.record(True, 102.0) is False
    assert breaker.allow(103.0) == 7.0


@pytest.mark.req("C-12")
def test_closed_for_starts_no_probe() -> None:
    breaker = open_breaker(100.0)
    assert breaker.closed_for(104.0) == 6.0
    assert breaker.closed_for(110.0) == 0.0
    assert state(breaker) == "open"
    assert Breaker().closed_for(0.0) == 0.0


@pytest.mark.req("C-12")
def test_a_clock_that_jumps_backwards_does_not_keep_the_breaker_open() -> None:
    breaker = open_breaker(1e6)
    assert breaker.allow(5.0) == 0.0
    assert state(breaker) == "probing"
    assert breaker.allow(1.0) == 0.0  # also during the probe
    assert breaker.record(False, 1.0)


@pytest.mark.req("C-12")
def test_a_clock_that_jumps_far_backwards_starts_a_new_window() -> None:
    breaker = Breaker(window=30, min_calls=4)
    calls(breaker, failed=3, well=0, now=1e6)
    assert not calls(breaker, failed=3, well=0, now=5.0)
    assert breaker.record(True, 6.0)


@pytest.mark.req("C-12")
def test_a_slightly_late_call_is_counted_and_clears_nothing() -> None:
    breaker = Breaker(window=10, min_calls=4)
    assert [breaker.record(True, now) for now in (5.01, 4.99, 5.02, 4.0)] == [False, False, False, True]


@pytest.mark.req("C-12")
def test_late_calls_add_no_slots() -> None:
    breaker = Breaker(window=10, min_calls=1000)
    for now in (0.5, 5.01, 4.99, 5.02, 4.98, 5.03):
        breaker.record(True, now)
    assert [slot for slot, _, _ in breaker._slots] == [0, 5]
    breaker.record(True, 14.5)
    assert [(slot, failures) for slot, _, failures in breaker._slots] == [(5, 5), (14, 1)]


def test_a_call_may_be_late_by_less_than_the_window() -> None:
    breaker = Breaker(window=10, min_calls=2)
    breaker.record(True, 20.5)
    assert breaker.record(True, 11.0)  # nine slots earlier
    other = Breaker(window=10, min_calls=2)
    other.record(True, 20.5)
    assert not other.record(True, 10.9)  # ten: the clock has jumped


def test_a_clock_may_start_below_zero() -> None:
    breaker = Breaker(window=10)
    breaker.record(True, -0.5)
    breaker.record(True, 0.5)
    assert [slot for slot, _, _ in breaker._slots] == [-1, 0]


@pytest.mark.req("C-12")
def test_breakers_are_shared_by_name_in_the_process() -> None:
    crm = Breaker.named("test_breaker.crm", window=timedelta(minutes=1))
    assert Breaker.named("test_breaker.crm") is crm
    assert Breaker.named("test_breaker.crm", window=60) is crm
    with pytest.raises(ValueError, match=re.escape("Breaker 'test_breaker.crm' already exists with window=60.0, not win")):
        Breaker.named("test_breaker.crm", window=61)


@pytest.mark.parametrize("rate", [0, -0.1, 1.01, 50, math.nan, math.inf])
def test_a_failure_rate_is_a_share(rate: float) -> None:
    with pytest.raises(ValueError, match=r"^failure_rate must (be above 0 and at most 1|be a finite number|not be negative)"):
        Breaker(failure_rate=rate)


def test_numbers_of_an_invalid_type_are_named() -> None:
    wrongs: list[Any] = [True, "0.5", None]
    for wrong in wrongs:
        kind = type(wrong).__name__
        with pytest.raises(TypeError, match=f"^failure_rate must be a number, not {kind}"):
            Breaker(failure_rate=wrong)
        with pytest.raises(TypeError, match=f"^min_calls must be a whole number, not {kind}"):
            Breaker(min_calls=wrong)
        with pytest.raises(TypeError, match=f"^window must be seconds or a timedelta, not {kind}"):
            Breaker(window=wrong)
        with pytest.raises(TypeError, match=f"^open_for must be seconds or a timedelta, not {kind}"):
            Breaker(open_for=wrong)
    with pytest.raises(TypeError, match="^min_calls must be a whole number, not float: 5.0$"):
        Breaker(min_calls=5.0)  # type: ignore[arg-type]


def test_numbers_out_of_range_are_named() -> None:
    for zero in (0, timedelta(0)):
        with pytest.raises(ValueError, match="^window must be above 0: "):
            Breaker(window=zero)
        with pytest.raises(ValueError, match="^open_for must be above 0: "):
            Breaker(open_for=zero)
    with pytest.raises(ValueError, match="^min_calls must be at least 1: 0$"):
        Breaker(min_calls=0)
    with pytest.raises(ValueError, match="^failure_rate must be above 0 and at most 1: 2$"):
        Breaker(failure_rate=2)
