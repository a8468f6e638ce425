"""When a partition is tried again, and what an error of its extraction means."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import Again, Blocked, Denied, Stop, Unavailable
from redrive.partitions.control.max_age import age_limit, is_requested
from redrive.partitions.control.source_health import requeued_in
from redrive.partitions.retry_schedule import Policy, Terms, after_loss, after_rejection, after_return, draw, meaning, pause_of

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
POLICY = Policy()


@pytest.mark.req("P-8")
@given(st.floats(0, 1, exclude_max=True))
def test_steps_of_five_minutes_half_an_hour_and_two_hours_with_jitter(seed: float) -> None:
    for attempt, wait in ((1, 300), (2, 1800), (3, 7200), (5, 7200)):
        then = after_rejection(POLICY, attempt, 9, seed, NOW, None)
        assert then.due is not None
        assert 0.9 * wait <= (then.due - NOW).total_seconds() <= 1.1 * wait
        assert then == after_rejection(POLICY, attempt, 9, seed, NOW, None)


def test_a_crowd_that_failed_together_comes_back_spread() -> None:
    dues = sorted(after_rejection(POLICY, 1, 9, number / 1000, NOW, None).due or NOW for number in range(1000))
    in_a_second = max(sum(due <= one < due + timedelta(seconds=1) for one in dues) for due in dues)
    assert in_a_second < 60


@pytest.mark.req("P-9")
def test_attempts_and_age_end_it() -> None:
    assert after_rejection(POLICY, 6, 6, 0.5, NOW, None).terminal == "attempts"
    assert after_rejection(POLICY, 5, 6, 0.5, NOW, None).terminal is None
    assert after_rejection(POLICY, 7, 6, 0.5, NOW, None).terminal == "attempts"
    old = Policy(max_age=timedelta(days=1))
    ends = age_limit(old, date(2026, 2, 27))
    assert ends == datetime(2026, 3, 1, tzinfo=timezone.utc)
    assert after_rejection(old, 1, 6, 0.5, NOW, ends).terminal == "age"
    assert age_limit(old, date(2028, 2, 28)) == datetime(2028, 3, 1, tzinfo=timezone.utc)  # a leap day
    assert age_limit(POLICY, date(1999, 1, 1)) is None
    assert age_limit(old, date(2026, 2, 27), requested=True) is None
    assert age_limit(old, date(2026, 2, 27), scheduled_at=ends) == ends  # on time, whatever the limit
    late = ends + timedelta(hours=12)
    assert age_limit(old, date(2026, 2, 27), scheduled_at=late) is None  # catch-up work
    assert age_limit(old, date(2026, 2, 27), scheduled_at=late - timedelta(seconds=1)) == ends
    assert after_rejection(POLICY, 1, 6, 0.5, NOW, None, final=True).terminal == "error"


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
def test_a_request_stays_one_when_it_is_queued_again(lane: int, sweep: int, state: str | None, requeued: tuple[int, int]) -> None:
    assert requeued_in(lane, sweep, state) == requeued
    assert is_requested(*requeued) == (is_requested(lane, sweep) and state != "cancelled")


def test_a_sources_own_words_count_where_they_are_longer() -> None:
    then = after_rejection(POLICY, 1, 6, 0.5, NOW, None, after=4000)
    assert then.due == NOW + timedelta(seconds=4000)
    then = after_rejection(POLICY, 1, 6, 0.5, NOW, None, after=1)
    assert then.due is not None
    assert then.due > NOW + timedelta(seconds=200)


def test_runs_that_vanish_come_back_at_once_then_later_then_never() -> None:
    assert after_loss(POLICY, 1, 0.5, NOW, None).due == NOW
    second = after_loss(POLICY, 2, 0.5, NOW, None).due
    assert second is not None
    assert second > NOW + timedelta(seconds=200)
    assert after_loss(POLICY, 5, 0.5, NOW, None).terminal == "lost"
    assert after_loss(POLICY, 1, 0.5, NOW, NOW).terminal == "age"


def test_what_is_given_back_waits_for_what_it_waits_for() -> None:
    assert after_return(POLICY, "stopped", None, 0.5, 1, NOW).due == NOW
    for cause, after, least in (
        ("not_ready", None, 900),
        ("rate_limited", 77.0, 77),
        ("systemic", None, 60),
        ("not_ready", 5.0, 5),
    ):
        due = after_return(POLICY, cause, after, 0.5, 1, NOW).due
        assert due is not None
        assert least <= (due - NOW).total_seconds() <= least + 6
    assert [pause_of(POLICY, probes, None) for probes in (0, 1, 2, 10)] == [60, 120, 240, 3600]
    assert pause_of(POLICY, 0, 5000) == 5000


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
def test_what_an_error_means(error: Exception, kind: str, after: float | None) -> None:
    found = meaning(error, NOW)
    assert (found.kind, found.after) == (kind, after)
    assert found.reason
    assert str(error) in found.message


def test_what_http_means() -> None:
    httpx = pytest.importorskip("httpx")
    request = httpx.Request("GET", "https://crm.example.com")
    for status, headers, kind in (
        (401, {}, "shared"),
        (403, {}, "shared"),
        (429, {"Retry-After": "30"}, "rate_limited"),
        (503, {}, "ordinary"),
    ):
        response = httpx.Response(status, headers=headers, request=request)
        found = meaning(httpx.HTTPStatusError("x", request=request, response=response), NOW)
        assert found.kind == kind, status


@given(st.floats(allow_nan=False), st.integers(-100, 100))
def test_a_draw_is_the_same_each_time(seed: float, turn: int) -> None:
    assert 0 <= draw(seed, turn) < 1
    assert draw(seed, turn) == draw(seed, turn)


@pytest.mark.parametrize(
    "wrong",
    [{"max_attempts": 0}, {"max_lost": True}, {"poll": 0}, {"max_age": timedelta(0)}, {"backoff": 5}, {"pause": -1}],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Policy(**wrong)


def test_terms_that_make_no_sense_are_refused() -> None:
    for wrong in ({"source": ""}, {"query_name": "\n"}, {"concurrency": 0}, {"source_concurrency": 0}):
        with pytest.raises(ValueError, match=r"must be"):
            Terms(**{"source": "crm", "query_name": "orders"} | wrong)
