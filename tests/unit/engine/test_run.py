"""A run: the effects and records of a failure."""

from __future__ import annotations

import math
import threading
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import pytest

from redrive import Budget, Fault, RetryPolicy, errors, outcome, retry
from redrive.core.context import ActiveScope
from redrive.core.fault import MAX_WAIT_SECONDS
from redrive.testing import FakeClock, instant
from tests.unit.engine.down import STEADY, Unspeakable, down


class Answer(Exception):
    """An error of an HTTP client, with a response that has a status and headers."""

    def __init__(self, status: int = 503, **headers: str) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def by_answer(error: Exception) -> Fault | None:
    from redrive.core.classification.known.http_responses import retry_after

    if not isinstance(error, Answer):
        return None
    return Fault("throttled", retry_after(error.headers), status=error.status)


# Retry-After


@pytest.mark.req("R-6")
def test_retry_after_is_a_minimum_wait(clock: FakeClock) -> None:
    for asked, waited in (("0.5", [1, 2]), ("1.5", [1.5, 2]), ("7", [7, 7]), ("0", [1, 2])):
        clock.slept.clear()
        with pytest.raises(Answer):
            retry(STEADY, on=by_answer).call(down(lambda asked=asked: Answer(retry_after=asked)))  # type: ignore[misc]
        assert clock.slept == waited


@pytest.mark.req("R-6")
@pytest.mark.parametrize("garbage", ["soon", "-5", "NaN", "inf", "1e3", "", "²", "Wed, 99 Foo 2015 07:28:00 GMT"])
def test_an_invalid_retry_after_is_ignored(clock: FakeClock, garbage: str) -> None:
    with pytest.raises(Answer):
        retry(STEADY, on=by_answer).call(down(lambda: Answer(retry_after=garbage)))
    assert clock.slept == [1, 2]


@pytest.mark.req("R-6")
def test_retry_after_may_be_a_date(clock: FakeClock) -> None:
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    dates = {
        "date": format_datetime(start, usegmt=True),
        "retry_after": format_datetime(start + timedelta(seconds=9), usegmt=True),
    }
    with pytest.raises(Answer):
        retry(STEADY, on=by_answer).call(down(lambda: Answer(**dates)))  # type: ignore[arg-type]
    assert clock.slept == [9, 9]
    clock.slept.clear()
    past = {"retry_after": format_datetime(start, usegmt=True)}
    with pytest.raises(Answer):
        retry(STEADY, on=by_answer).call(down(lambda: Answer(**past)))  # type: ignore[arg-type]
    assert clock.slept == [1, 2]


@pytest.mark.req("R-6")
@pytest.mark.parametrize(("asked", "limit"), [("30", 10.0), ("7200", None), ("9" * 400, None), ("9" * 400, 10.0)])
def test_a_retry_after_that_does_not_fit_fails_immediately(clock: FakeClock, asked: str, limit: float | None) -> None:
    layer = retry(RetryPolicy(max_attempts=3, backoff_base=1, jitter=0, timeout=limit), on=by_answer)
    with pytest.raises(Answer) as caught:
        layer.call(down(lambda: Answer(retry_after=asked)))
    assert clock.slept == []
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.spent) == (1, "retry_after", True)
    assert ended.retry_at is not None
    assert (ended.retry_at - clock.now()).total_seconds() == min(float(asked), 1e9)
    assert "the server asks for a longer wait than the call may take" in caught.value.__notes__[0]


@pytest.mark.req("R-6")
@pytest.mark.parametrize("asked", [61, 120, 600])
def test_without_a_time_limit_a_long_retry_after_is_waited_for(clock: FakeClock, asked: int) -> None:
    with pytest.raises(Answer):
        retry(STEADY, on=by_answer).call(down(lambda: Answer(retry_after=str(asked))))
    assert clock.slept == [asked, asked]


class Job:
    """The scope that a worker sets around a job."""

    operation, max_attempts, job_id = "sync", 3, "j-1"


@pytest.mark.req("R-6")
def test_inside_a_job_a_long_retry_after_fails_immediately(clock: FakeClock) -> None:
    around = ActiveScope((math.inf, 1, Job(), None, None))
    try:
        with pytest.raises(Answer) as caught:
            retry(STEADY, on=by_answer).call(down(lambda: Answer(retry_after="61")))
    finally:
        around.leave()
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.reason, clock.slept) == ("retry_after", [])
    assert ended.retry_at == clock.now() + timedelta(seconds=61)
    assert f"retry at {ended.retry_at:%Y-%m-%dT%H:%M:%SZ}" in caught.value.__notes__[0]


@pytest.mark.req("R-6")
def test_exhausted_attempts_keep_the_retry_after(clock: FakeClock) -> None:
    with pytest.raises(Answer) as caught:
        retry(RetryPolicy(max_attempts=2, backoff_base=0, jitter=0), on=by_answer).call(down(lambda: Answer(retry_after="40")))
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "attempts"
    assert ended.retry_at == clock.now() + timedelta(seconds=40)


# Custom backoffs and rules


@pytest.mark.parametrize(
    ("wait", "slept"),
    [
        (math.nan, []),
        (-5, []),
        (0, []),
        (2, [2, 2]),
        (Decimal("0.5"), [0.5, 0.5]),
        (math.inf, [MAX_WAIT_SECONDS, MAX_WAIT_SECONDS]),
        (True, [1, 1]),
    ],
)
def test_any_number_returned_by_a_backoff_is_accepted(clock: FakeClock, wait: Any, slept: list[float]) -> None:
    with pytest.raises(OSError, match="down"):
        retry(STEADY, on=OSError, backoff=lambda attempt, draw: wait).call(down())
    assert clock.slept == slept
    assert all(type(each) is float for each in clock.slept)


def test_an_infinite_backoff_under_a_deadline_ends_immediately(clock: FakeClock) -> None:
    with pytest.raises(OSError, match="down") as caught:
        retry(RetryPolicy(timeout=5), on=OSError, backoff=lambda attempt, draw: math.inf).call(down())
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "timeout")


def _raise(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"backoff": lambda attempt, draw: None, "on": OSError}, "TypeError"),
        ({"backoff": lambda attempt, draw: "1s", "on": OSError}, "ValueError"),
        ({"backoff": lambda attempt, draw: _raise(ZeroDivisionError("mine")), "on": OSError}, "ZeroDivisionError: mine"),
        ({"backoff": lambda attempt, draw: _raise(Unspeakable()), "on": OSError}, "Unspeakable: (its message cannot be read)"),
        ({"on": lambda error: _raise(KeyError("mine"))}, "KeyError: 'mine'"),
        ({"on": lambda error: 5}, "a rule must return a Fault, True, False or None, not int: 5"),
        ({"on": lambda error: Fault("transient", after="soon")}, "TypeError"),  # type: ignore[arg-type]
    ],
    ids=range(7),
)
def test_a_bug_in_a_rule_or_backoff_does_not_hide_the_error(clock: FakeClock, options: dict[str, Any], says: str) -> None:
    with pytest.raises(OSError, match="down") as caught:
        retry(STEADY, **options).call(down())
    assert "redrive: not retried, because the rule or the backoff raised " in caught.value.__notes__[0]
    assert says in caught.value.__notes__[0]
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "not_retryable")


def test_jitter_is_drawn_for_each_wait() -> None:
    layer = retry(RetryPolicy(max_attempts=4, backoff_base=1, jitter=2), on=OSError)
    with instant(jitter=0.5) as clock, pytest.raises(OSError, match="down"):
        layer.call(down())
    assert clock.slept == [2, 3, 5]
    with instant(seed=1) as first, pytest.raises(OSError, match="down"):
        layer.call(down())
    with instant(seed=1) as second, pytest.raises(OSError, match="down"):
        layer.call(down())
    assert first.slept == second.slept != [1, 2, 4]


# Control exceptions


@pytest.mark.parametrize("word", [errors.Stop("enough"), errors.Again("later", after=5), errors.Blocked("waits")])
def test_control_exceptions_are_final_under_any_rules(clock: FakeClock, word: Exception) -> None:
    with pytest.raises(type(word)) as caught:
        retry(STEADY, on=lambda _: True).call(down(lambda: word))
    ended = outcome(caught.value)
    assert clock.slept == []
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.spent) == (1, "stopped", False)


@pytest.mark.req("C-10")
def test_a_call_that_may_have_executed_is_not_repeated_unless_idempotent(clock: FakeClock) -> None:
    for sent, attempts, reason in ((True, 1, "not_idempotent"), (False, 3, "attempts")):
        calls = 0

        def work() -> None:
            nonlocal calls
            calls += 1
            raise OSError("down")

        with pytest.raises(OSError, match="down") as caught:
            retry(STEADY, idempotent=False, on=lambda _, sent=sent: Fault("transient", sent=sent)).call(work)
        ended = outcome(caught.value)
        assert ended is not None
        assert (calls, ended.reason) == (attempts, reason)


@pytest.mark.req("C-9")
def test_threads_share_one_retry_and_one_budget() -> None:
    budget = Budget(capacity=1000, cost=1, refill=0, floor=0)
    layer = retry(RetryPolicy(max_attempts=1000, backoff_base=0, jitter=0), on=OSError, budget=budget, attempt_timeout=None)
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise OSError("down")

    def go() -> None:
        for _ in range(20):
            with pytest.raises(OSError, match="down"):
                layer.call(work)

    threads = [threading.Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 8 * 20 + 1000
    assert budget.left == 0
