"""The decision after a failed attempt: retry after a wait, or stop with a reason."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from redrive import Fault
from redrive.core.fault import (
    MAX_RETRY_AFTER_IN_JOB_SECONDS,
    MAX_RETRY_AFTER_SECONDS,
    MAX_WAIT_SECONDS,
    SPENT,
    Kind,
    Reason,
    decide,
)

BUSY = Fault("transient")


def decide_with_defaults(
    fault: Fault = BUSY,
    attempt: int = 1,
    max_attempts: int = 3,
    idempotent: bool = True,
    wait: float = 1.0,
    left: float = math.inf,
) -> tuple[Reason | None, float]:
    return decide(fault, attempt, max_attempts, idempotent, wait, left)


@pytest.mark.req("R-4")
@pytest.mark.parametrize("kind", ["transient", "throttled", "timeout"])
def test_a_retryable_fault_is_retried_after_the_backoff(kind: Kind) -> None:
    assert decide_with_defaults(Fault(kind)) == (None, 1.0)
    assert decide_with_defaults(Fault(kind), wait=0.0) == (None, 0.0)
    assert decide_with_defaults(Fault(kind), wait=0.25) == (None, 0.25)


@pytest.mark.parametrize("kind", ["permanent", "unknown"])
def test_a_permanent_fault_is_never_retried(kind: Kind) -> None:
    reason, wait = decide_with_defaults(Fault(kind, after=5, sent=False))
    assert reason == "not_retryable"
    assert math.isnan(wait)


@pytest.mark.parametrize(
    ("attempt", "most", "reason"), [(1, 1, "attempts"), (2, 3, None), (3, 3, "attempts"), (4, 3, "attempts")]
)
def test_the_last_attempt_is_not_retried(attempt: int, most: int, reason: Reason | None) -> None:
    assert decide_with_defaults(attempt=attempt, max_attempts=most)[0] == reason


def test_a_hundred_thousand_attempts_are_counted() -> None:
    assert decide_with_defaults(attempt=99_999, max_attempts=100_000) == (None, 1.0)
    assert decide_with_defaults(attempt=100_000, max_attempts=100_000)[0] == "attempts"


@pytest.mark.req("R-6")
def test_after_the_last_attempt_the_wait_is_the_retry_after() -> None:
    reason, wait = decide_with_defaults(attempt=3)
    assert reason == "attempts"
    assert math.isnan(wait)
    assert decide_with_defaults(Fault("throttled", after=7), attempt=3) == ("attempts", 7.0)


@pytest.mark.req("C-10")
def test_a_sent_call_is_not_retried_without_idempotency_and_an_unsent_one_is() -> None:
    reason, wait = decide_with_defaults(BUSY, idempotent=False)
    assert reason == "not_idempotent"
    assert math.isnan(wait)
    assert decide_with_defaults(Fault("transient", sent=False), idempotent=False) == (None, 1.0)
    assert decide_with_defaults(Fault("transient", sent=False), idempotent=True) == (None, 1.0)
    assert decide_with_defaults(BUSY, idempotent=True) == (None, 1.0)


@pytest.mark.req("C-10")
def test_an_unsent_call_is_bounded_by_attempts_and_time() -> None:
    never_sent = Fault("transient", sent=False)
    assert decide_with_defaults(never_sent, idempotent=False, attempt=3)[0] == "attempts"
    assert decide_with_defaults(never_sent, idempotent=False, left=0.5)[0] == "timeout"


@pytest.mark.req("R-5")
@pytest.mark.parametrize(
    ("left", "reason"), [(1.001, None), (1.0, "timeout"), (0.5, "timeout"), (0.0, "timeout"), (-3.0, "timeout")]
)
def test_a_wait_beyond_the_deadline_is_not_slept(left: float, reason: Reason | None) -> None:
    assert decide_with_defaults(left=left) == (reason, 1.0)


@pytest.mark.req("R-5")
def test_without_time_left_not_even_a_zero_wait_fits() -> None:
    assert decide_with_defaults(wait=0.0, left=0.0) == ("timeout", 0.0)


@pytest.mark.req("R-6")
@pytest.mark.parametrize(("after", "waited"), [(0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (1.5, 1.5), (60.0, 60.0)])
def test_retry_after_is_a_minimum_wait(after: float, waited: float) -> None:
    assert decide_with_defaults(Fault("throttled", after=after)) == (None, waited)


@pytest.mark.req("R-6")
@pytest.mark.parametrize(("left", "reason"), [(5.001, None), (5.0, "retry_after"), (2.0, "retry_after"), (0.0, "retry_after")])
def test_a_retry_after_that_does_not_fit_has_its_own_reason(left: float, reason: Reason | None) -> None:
    assert decide_with_defaults(Fault("throttled", after=5), left=left) == (reason, 5.0)


@pytest.mark.req("R-6")
def test_a_backoff_longer_than_retry_after_ends_with_timeout() -> None:
    assert decide_with_defaults(Fault("throttled", after=1), wait=5.0, left=3.0) == ("timeout", 5.0)
    assert decide_with_defaults(Fault("throttled", after=5), wait=5.0, left=3.0) == ("timeout", 5.0)


@pytest.mark.req("R-6")
@pytest.mark.parametrize(
    ("after", "reason"),
    [(MAX_RETRY_AFTER_SECONDS, None), (math.nextafter(MAX_RETRY_AFTER_SECONDS, 1e9), "retry_after"), (1e300, "retry_after")],
)
def test_a_long_retry_after_is_rejected_without_a_time_limit(after: float, reason: Reason | None) -> None:
    assert decide_with_defaults(Fault("throttled", after=after)) == (reason, after)


@pytest.mark.req("R-6")
def test_a_time_limit_decides_how_long_retry_after_may_be() -> None:
    assert decide_with_defaults(Fault("throttled", after=2 * MAX_RETRY_AFTER_SECONDS), left=3 * MAX_RETRY_AFTER_SECONDS) == (
        None,
        2 * MAX_RETRY_AFTER_SECONDS,
    )
    assert decide_with_defaults(Fault("throttled", after=2 * MAX_RETRY_AFTER_SECONDS), left=MAX_RETRY_AFTER_SECONDS) == (
        "retry_after",
        2 * MAX_RETRY_AFTER_SECONDS,
    )


def test_a_backoff_longer_than_the_limit_allows_a_long_retry_after() -> None:
    assert decide_with_defaults(Fault("throttled", after=2 * MAX_RETRY_AFTER_SECONDS), wait=3 * MAX_RETRY_AFTER_SECONDS) == (
        None,
        3 * MAX_RETRY_AFTER_SECONDS,
    )


@pytest.mark.parametrize(
    ("wait", "kept"),
    [
        (math.nan, 0.0),
        (-1.0, 0.0),
        (-math.inf, 0.0),
        (math.inf, MAX_WAIT_SECONDS),
        (2 * MAX_WAIT_SECONDS, MAX_WAIT_SECONDS),
        (MAX_WAIT_SECONDS, MAX_WAIT_SECONDS),
        (-0.0, 0.0),
    ],
)
def test_a_custom_backoff_is_limited_to_valid_waits(wait: float, kept: float) -> None:
    assert decide_with_defaults(wait=wait) == (None, kept)


@pytest.mark.req("R-6")
def test_an_invalid_backoff_does_not_shorten_retry_after() -> None:
    assert decide_with_defaults(Fault("throttled", after=5), wait=math.nan) == (None, 5.0)


def test_the_longest_waits_are_three_years_and_a_minute() -> None:
    assert (MAX_WAIT_SECONDS, MAX_RETRY_AFTER_SECONDS, MAX_RETRY_AFTER_IN_JOB_SECONDS) == (100_000_000, 600, 60)


def test_spent_reasons_differ_from_final_reasons() -> None:
    assert {"attempts", "timeout", "retry_after", "budget", "breaker_open"} == SPENT
    assert set(get_args(Reason)) - SPENT == {"not_retryable", "not_idempotent", "nested", "stopped"}
