"""The checks before an attempt starts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive import Breaker, Key, deadline, errors, outcome
from redrive.core.context import key_around
from redrive.engine.run import check_may_start, reject_result, start_run, timeout_message
from redrive.engine.settings import RetrySettings
from redrive.testing import FakeClock

CRM = RetrySettings(operation="crm")


@pytest.mark.req("C-8")
@pytest.mark.parametrize("late_by", [0, 1])
def test_an_attempt_without_time_left_does_not_start(late_by: float) -> None:
    clock = FakeClock()
    now = clock.monotonic()
    with pytest.raises(errors.AttemptTimeout, match="crm: the deadline had passed before the attempt could start") as caught:
        check_may_start(CRM, clock, now, now - late_by)
    assert isinstance(caught.value, TimeoutError)
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.layer) == (0, "timeout", "crm")


def test_an_attempt_with_time_left_starts() -> None:
    clock = FakeClock()
    check_may_start(CRM, clock, clock.monotonic(), clock.monotonic() + 0.001)


@pytest.mark.req("C-12")
def test_an_attempt_behind_an_open_breaker_does_not_start() -> None:
    clock = FakeClock()
    breaker = Breaker(min_calls=1, failure_rate=0.5, open_for=4)
    breaker.record(True, clock.monotonic())
    clock.advance(1)
    with pytest.raises(errors.BreakerOpen, match="for 3 s more") as caught:
        start_run(RetrySettings(operation="crm", breaker=breaker), clock, 60, None, None)
    assert caught.value.retry_at == clock.now() + timedelta(seconds=3)
    clock.advance(3)
    start_run(RetrySettings(operation="crm", breaker=breaker), clock, 60, None, None)
    assert breaker.state == "probing"


@pytest.mark.req("C-8")
def test_a_run_ends_at_the_earliest_limit() -> None:
    clock = FakeClock()
    now = clock.monotonic()
    assert start_run(CRM, clock, 60, None, None).end == now + 60
    assert start_run(CRM, clock, 60, None, (now + 5, 1, None, None, None)).end == now + 5
    assert start_run(CRM, clock, 3, None, (now + 5, 1, None, None, None)).end == now + 3


@pytest.mark.req("C-1")
def test_the_key_of_a_run_precedes_surrounding_keys() -> None:
    outer = (1e18, 1, None, "outer", None)
    own = Key("a", "b", "c", "d")
    assert key_around(start_run(CRM, FakeClock(), 60, own, outer).scope) == own
    assert key_around(start_run(CRM, FakeClock(), 60, None, outer).scope) == "outer"


@pytest.mark.req("C-1")
def test_a_rejected_result_raises_rejected() -> None:
    reject_result(lambda result: result > 5, 5, CRM)
    with pytest.raises(errors.Rejected, match="crm: the result was rejected") as caught:
        reject_result(lambda result: result > 5, 6, CRM)
    assert caught.value.result == 6


def test_a_timeout_message_names_attempt_and_limit() -> None:
    assert timeout_message(CRM, 2, 0.25) == "crm: attempt 2 took longer than 0.25 s"


def test_a_run_inside_a_deadline_starts() -> None:
    with deadline(5):
        start_run(CRM, FakeClock(), 60, None, None)
