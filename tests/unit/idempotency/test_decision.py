"""The decision on a stored key."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from redrive.idempotency.record import KeyRow, decide, retry_at

HASH = b"1" * 32


@pytest.mark.parametrize(
    ("status", "is_leased", "is_expired", "outcome"),
    [
        ("processing", True, False, "busy"),
        ("processing", True, True, "busy"),
        ("processing", False, False, None),
        ("processing", False, True, None),
        ("completed", True, False, "completed"),
        ("completed", False, False, "completed"),
        ("completed", True, True, None),
        ("failed", False, False, "failed"),
        ("failed", False, True, None),
    ],
)
def test_outcome_for_a_stored_key(status: str, is_leased: bool, is_expired: bool, outcome: str | None) -> None:
    row = KeyRow(status, HASH, 1, b"1", '{"type":"X"}', is_leased, is_expired)
    result = decide(row, HASH, 30.0)
    assert (result and result.outcome) == outcome
    other = decide(row, b"2" * 32, 30.0)
    assert (other and other.outcome) == (None if is_expired and outcome is None else "conflict")


def test_retry_at_doubles_the_elapsed_time_within_limits() -> None:
    now = datetime.now(timezone.utc)
    for elapsed, expected in ((0.0, 1.0), (5.0, 5.0), (300.0, 30.0), (-100.0, 1.0)):
        fence = int((now - timedelta(seconds=elapsed)).timestamp() * 1_000_000)
        assert (retry_at(fence, 30.0) - now).total_seconds() == pytest.approx(expected, abs=0.5)
