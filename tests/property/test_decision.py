"""The decision: invariants for every fault, wait and deadline."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Fault
from redrive.core.fault import KINDS, MAX_RETRY_AFTER_SECONDS, MAX_WAIT_SECONDS, decide

FAULTS = st.builds(Fault, st.sampled_from(KINDS), st.none() | st.floats(-1e6, 1e300), st.booleans())
COUNTS = st.integers(1, 100_000)
WAITS = st.floats()  # any value of a custom backoff
LEFT = st.floats(-1e9, 1e9) | st.just(math.inf)


@pytest.mark.req("R-5", "R-6", "C-10")
@given(FAULTS, COUNTS, COUNTS, st.booleans(), WAITS, LEFT)
def test_a_retry_needs_attempts_idempotency_time_and_retry_after(
    fault: Fault, attempt: int, most: int, idempotent: bool, wait: float, left: float
) -> None:
    reason, waited = decide(fault, attempt, most, idempotent, wait, left)
    if reason is None:
        assert fault.retryable
        assert idempotent or not fault.sent
        assert attempt < most
        assert 0 <= waited < left
        assert waited <= MAX_WAIT_SECONDS
        assert fault.after is None or waited >= fault.after
        assert waited >= min(wait, MAX_WAIT_SECONDS) or math.isnan(wait)
        assert fault.after is None or fault.after <= max(MAX_RETRY_AFTER_SECONDS, wait)
    else:
        assert math.isnan(waited) or waited >= 0


@pytest.mark.req("R-5", "R-6")
@given(FAULTS, COUNTS, COUNTS, st.booleans(), WAITS, LEFT)
def test_the_first_matching_reason_is_returned(
    fault: Fault, attempt: int, most: int, idempotent: bool, wait: float, left: float
) -> None:
    reason, _ = decide(fault, attempt, most, idempotent, wait, left)
    sane = 0.0 if math.isnan(wait) else min(max(wait, 0.0), MAX_WAIT_SECONDS)
    asked = fault.after is not None and fault.after > sane
    expected = (
        "not_retryable"
        if not fault.retryable
        else "not_idempotent"
        if fault.sent and not idempotent
        else "attempts"
        if attempt >= most
        else "retry_after"
        if asked and ((fault.after or 0) >= left or (fault.after or 0) > MAX_RETRY_AFTER_SECONDS)
        else "timeout"
        if not asked and sane >= left
        else None
    )
    assert reason == expected


@given(FAULTS, COUNTS, COUNTS, st.booleans(), WAITS, LEFT, st.floats(0, 1e6))
def test_more_time_never_prevents_a_retry(
    fault: Fault, attempt: int, most: int, idempotent: bool, wait: float, left: float, more: float
) -> None:
    if decide(fault, attempt, most, idempotent, wait, left)[0] is None:
        assert decide(fault, attempt, most, idempotent, wait, left + more)[0] is None
