"""When a partition is attempted again, and the meaning of extraction errors."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import Again, Blocked, Denied, Stop, Unavailable
from redrive.partitions.control.limits import age_limit, is_requested
from redrive.partitions.control.source_health import requeued_in
from redrive.partitions.model import ReleaseCause
from redrive.partitions.retry_schedule import (
    AttemptBudget,
    DatasetLimits,
    Policy,
    after_loss,
    after_rejection,
    after_release,
    draw,
    meaning_of,
    pause_seconds,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
POLICY = Policy()


@pytest.mark.req("P-8")
@given(st.floats(0, 1, exclude_max=True))
def test_steps_of_five_minutes_half_an_hour_and_two_hours_with_jitter(seed: float) -> None:
    for attempt, wait in ((1, 300), (2, 1800), (3, 7200), (5, 7200)):
        then = after_rejection(POLICY, AttemptBudget(attempt, 9), seed, NOW, None)
        assert then.due is not None
        assert 0.9 * wait <= (then.due - NOW).total_seconds() <= 1.1 * wait
        assert then == after_rejection(POLICY, AttemptBudget(attempt, 9), seed, NOW, None)


def test_jitter_spreads_partitions_that_failed_together() -> None:
    dues = sorted(after_rejection(POLICY, AttemptBudget(1, 9), number / 1000, NOW, None).due or NOW for number in range(1000))
    in_a_second = max(sum(due <= one < due + timedelta(seconds=1) for one in dues) for due in dues)
    assert in_a_second < 60


@pytest.mark.req("P-9")
def test_a_partition_gives_up_at_its_attempts_or_its_age() -> None:
    assert after_rejection(POLICY, AttemptBudget(6, 6), 0.5, NOW, None).terminal == "attempts"
    assert after_rejection(POLICY, AttemptBudget(5, 6), 0.5, NOW, None).terminal is None
    assert after_rejection(POLICY, AttemptBudget(7, 6), 0.5, NOW, None).terminal == "attempts"
    old = Policy(max_age=timedelta(days=1))
    ends = age_limit(old, date(2026, 2, 27))
    assert ends == datetime(2026, 3, 1, tzinfo=timezone.utc)
    assert after_rejection(old, AttemptBudget(1, 6), 0.5, NOW, ends).terminal == "age"
    assert age_limit(old, date(2028, 2, 28)) == datetime(2028, 3, 1, tzinfo=timezone.utc)  # a leap day
    assert age_limit(POLICY, date(1999, 1, 1)) is None
    assert age_limit(old, date(2026, 2, 27), requested=True) is None
    assert age_limit(old, date(2026, 2, 27), scheduled_at=ends) == ends  # on time, with any limit
    late = ends + timedelta(hours=12)
    assert age_limit(old, date(2026, 2, 27), scheduled_at=late) is None  # catch-up work
    assert age_limit(old, date(2026, 2, 27), scheduled_at=late - timedelta(seconds=1)) == ends
    assert after_rejection(POLICY, AttemptBudget(1, 6), 0.5, NOW, None, final=True).terminal == "error"


@pytest.mark.req("P-9")
@pytest.mark.parametrize(
    ("lane", "sweep", "state", "requeued"),
    [
        (2, 7, "running", (2, 7)),
        (1, 7, "halted", (1, 7)),
        (2, 7, "done", (2, 0)),
        (1, 7, "done", (2, 0)),
        (2, 7, "cancelled", (1, 0)),
        (2, 0, None, (2, 0)),  # requeued before, when its sweep was done
        (0, 7, "running", (1, 0)),  # a schedule's
        (1, 0, None, (1, 0)),
    ],
)
def test_a_request_stays_a_request_when_it_is_queued_again(
    lane: int, sweep: int, state: str | None, requeued: tuple[int, int]
) -> None:
    assert requeued_in(lane, sweep, state) == requeued
    assert is_requested(*requeued) == (is_requested(lane, sweep) and state != "cancelled")


def test_a_wait_of_the_source_counts_if_it_is_longer() -> None:
    then = after_rejection(POLICY, AttemptBudget(1, 6), 0.5, NOW, None, after=4000)
    assert then.due == NOW + timedelta(seconds=4000)
    then = after_rejection(POLICY, AttemptBudget(1, 6), 0.5, NOW, None, after=1)
    assert then.due is not None
    assert then.due > NOW + timedelta(seconds=200)


def test_lost_runs_are_retried_immediately_then_later_then_never() -> None:
    assert after_loss(POLICY, 1, 0.5, NOW, None).due == NOW
    second = after_loss(POLICY, 2, 0.5, NOW, None).due
    assert second is not None
    assert second > NOW + timedelta(seconds=200)
    assert after_loss(POLICY, 5, 0.5, NOW, None).terminal == "lost"
    assert after_loss(POLICY, 1, 0.5, NOW, NOW).terminal == "age"


def test_released_partitions_wait_by_their_cause() -> None:
    assert after_release(POLICY, "stopped", None, 0.5, 1, NOW).due == NOW
    causes: tuple[tuple[ReleaseCause, float | None, int], ...] = (
        ("not_ready", None, 900),
        ("rate_limited", 77.0, 77),
        ("systemic", None, 60),
        ("not_ready", 5.0, 5),
    )
    for cause, after, least in causes:
        due = after_release(POLICY, cause, after, 0.5, 1, NOW).due
        assert due is not None
        assert least <= (due - NOW).total_seconds() <= least + 6
    assert [pause_seconds(POLICY, probes, None) for probes in (0, 1, 2, 10)] == [60, 120, 240, 3600]
    assert pause_seconds(POLICY, 0, 5000) == 5000


class Throttled(Exception):
    status_code = 429


@pytest.mark.parametrize(
    ("error", "kind", "after"),
    [
        (Again("no export yet", after=60, free=True), "not_ready", 60),
        (Again("once more"), "ordinary", None),
        (Stop("the schema changed"), "final", None),
        (Blocked("quota", until=NOW + timedelta(hours=1)), "shared", 3600),
        (Blocked("maintenance", systemic=True), "systemic", None),
        (Denied("no", path="x", backend="s3"), "shared", None),
        (Unavailable("no", path="x", backend="s3"), "shared", None),
        (ConnectionResetError("gone"), "ordinary", None),
        (ValueError("bad"), "ordinary", None),
    ],
)
def test_meaning_of_errors(error: Exception, kind: str, after: float | None) -> None:
    found = meaning_of(error, NOW)
    assert (found.kind, found.after) == (kind, after)
    assert found.reason
    assert str(error) in found.message


def test_meaning_of_http_statuses() -> None:
    httpx = pytest.importorskip("httpx")
    request = httpx.Request("GET", "https://crm.example.com")
    for status, headers, kind in (
        (401, {}, "shared"),
        (403, {}, "shared"),
        (429, {"Retry-After": "30"}, "rate_limited"),
        (503, {}, "ordinary"),
    ):
        response = httpx.Response(status, headers=headers, request=request)
        found = meaning_of(httpx.HTTPStatusError("x", request=request, response=response), NOW)
        assert found.kind == kind, status


@given(st.floats(allow_nan=False), st.integers(-100, 100))
def test_jitter_is_deterministic(seed: float, turn: int) -> None:
    assert 0 <= draw(seed, turn) < 1
    assert draw(seed, turn) == draw(seed, turn)


@pytest.mark.parametrize(
    "wrong",
    [{"max_attempts": 0}, {"max_lost": True}, {"poll": 0}, {"max_age": timedelta(0)}, {"backoff": 5}, {"pause": -1}],
)
def test_an_invalid_policy_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Policy(**wrong)


def test_invalid_limits_are_rejected() -> None:
    for wrong in ({"source": ""}, {"query_name": "\n"}, {"concurrency": 0}, {"source_concurrency": 0}):
        with pytest.raises(ValueError, match=r"must be"):
            DatasetLimits(**{"source": "crm", "query_name": "orders"} | wrong)
