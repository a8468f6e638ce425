"""Activity: throughput, durations and failures by cause over a chosen range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from redrive.ledger import Ledger
from redrive.ledger.db.tables import failure, failure_slot
from redrive.ledger.stats import activity, failures
from redrive.ledger.stats.activity import ALL_KINDS, ActivityRow, minute_of
from redrive.ledger.stats.failure_groups import ALL_SIGNATURES, FailureGroup, slot_of
from redrive.ledger.stats.failures import StepCount, steps_by_group
from redrive.ledger.stats.histogram import bucket_of
from redrive.ops.operator import Operator
from redrive.ops.overview.activity import MAX_CAUSES, MAX_POINTS, MAX_SLOTS, choose_step
from tests.conformance.ledger.world import session
from tests.conformance.ops.world import die

NOW = datetime(2026, 1, 31, 12, 30, tzinfo=timezone.utc)


def write(ledger: Ledger, minutes_ago: int, *, kind: str = "mail", done: int = 1, failed: int = 0, run: float = 1.0) -> None:
    """Write the same minute for a job type and for the app, as a worker does."""
    slot = minute_of(ledger.now()) - minutes_ago
    counts = {bucket_of(run * 1e6): done + failed}
    rows = [ActivityRow(each, slot, 1, done, failed, 0, 0, counts, counts) for each in (kind, ALL_KINDS)]
    with session(ledger) as held:
        activity.write(held, "w1", rows)


@pytest.mark.req("Q-12")
def test_activity_of_the_last_hour_is_counted_by_minute(ledger: Ledger, ann: Operator) -> None:
    write(ledger, 3, done=5, failed=2, run=2.0)
    write(ledger, 30, done=95, run=0.1)
    write(ledger, 90, done=1000)
    report = ann.overview.activity(since=ledger.now() - timedelta(hours=1))
    assert (report.step, report.kind, report.is_empty) == (60, None, False)
    assert 60 <= len(report.points) <= 62
    assert (report.total.done, report.total.failed, report.total.ended) == (100, 2, 102)
    busy = [point for point in report.points if point.ended]
    assert [(point.done, point.failed) for point in busy] == [(95, 0), (5, 2)]
    assert busy[1].run_p50 == pytest.approx(2.0, rel=0.1)
    assert report.total.run_p50 == pytest.approx(0.1, rel=0.1)
    assert report.total.wait_p95 == pytest.approx(2.0, rel=0.1)
    assert [point.run_p50 for point in report.points if not point.ended] == [None] * (len(report.points) - 2)


@pytest.mark.req("Q-12")
def test_activity_can_be_limited_to_one_job_type(ledger: Ledger, ann: Operator) -> None:
    write(ledger, 5, kind="mail", done=7)
    write(ledger, 6, kind="sms", done=3, failed=1)
    mail = ann.overview.activity(kind="mail")
    assert (mail.total.done, mail.kinds) == (7, ())
    everything = ann.overview.activity()
    assert everything.total.done == 10
    assert [(line.kind, line.done, line.failed) for line in everything.kinds] == [("mail", 7, 0), ("sms", 3, 1)]


@pytest.mark.req("Q-12")
def test_failures_are_counted_by_cause(ledger: Ledger, ann: Operator) -> None:
    die(ledger, *"abc", signature="TimeoutError")
    die(ledger, "d", kind="mail", signature="KeyError")
    report = ann.overview.activity(since=ledger.now() - timedelta(hours=1))
    assert [(line.kind, line.signature, line.total) for line in report.causes] == [
        ("crm.sync", "TimeoutError", 3),
        ("mail", "KeyError", 1),
    ]
    assert report.cause_step == 600
    assert all(len(line.counts) == len(report.cause_times) for line in report.causes)
    assert [line.kind for line in ann.overview.activity(kind="mail").causes] == ["mail"]
    assert ann.overview.activity(with_details=False).causes == ()


@pytest.mark.req("Q-12")
def test_small_causes_are_merged_into_one_series(ledger: Ledger, ann: Operator) -> None:
    for number in range(10):
        die(ledger, *(f"{number}-{each}" for each in range(number + 1)), signature=f"Error{number}")
    causes = ann.overview.activity().causes
    assert len(causes) == 7
    assert (causes[0].signature, causes[0].total) == ("Error9", 10)
    assert (causes[-1].kind, causes[-1].total) == (None, 1 + 2 + 3 + 4)


GROUPS = 60


def fill_failures(ledger: Ledger) -> None:
    """Write groups with a failure in each slot of 30 days, and one with a burst in the last hour."""
    now = ledger.now()
    last = slot_of(now)
    names = [f"Error{number}" for number in range(GROUPS)]
    slots: list[dict[str, Any]] = [
        {"kind": "mail", "signature": n, "slot": last - ago, "tries": 1} for n in names for ago in range(0, 30 * 144, 8)
    ]
    slots.append({"kind": "mail", "signature": "Burst", "slot": last, "tries": 600})
    sums: Counter[int] = Counter()
    for each in slots:
        sums[each["slot"]] += each["tries"]
    slots += [{"kind": "mail", "signature": ALL_SIGNATURES, "slot": slot, "tries": tries} for slot, tries in sums.items()]
    groups = [{"kind": "mail", "signature": n, "tries": 540, "first_at": now - timedelta(days=30), "last_at": now} for n in names]
    groups.append({"kind": "mail", "signature": "Burst", "tries": 900, "first_at": now - timedelta(days=30), "last_at": now})
    with session(ledger) as held, held.transaction("activity") as connection:
        connection.execute(insert(failure_slot), slots)
        connection.execute(insert(failure), groups)


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("days", [1, 7, 30])
def test_a_long_range_reads_the_slots_of_few_groups(
    ledger: Ledger, ann: Operator, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_failures(ledger)
    read = []

    def note(connection: Connection, wanted: Sequence[FailureGroup], *rest: int) -> dict[FailureGroup, list[StepCount]]:
        read.append(len(wanted))
        return steps_by_group(connection, wanted, *rest)

    monkeypatch.setattr(failures, "steps_by_group", note)
    report = ann.overview.activity(since=ledger.now() - timedelta(days=days))
    assert read[0] <= max(2 * MAX_CAUSES, MAX_SLOTS // (144 * days)) + 1
    assert (report.causes[0].signature, report.causes[0].total, len(report.causes)) == ("Burst", 600, MAX_CAUSES + 1)
    steady = days * 18 * GROUPS
    assert abs(sum(line.total for line in report.causes) - 600 - steady) <= 2 * GROUPS


def test_activity_of_an_empty_ledger_is_empty(ledger: Ledger, ann: Operator) -> None:
    report = ann.overview.activity()
    assert report.is_empty
    assert (report.total.ended, report.total.run_p50, report.kinds) == (0, None, ())


@pytest.mark.parametrize(
    ("since", "until", "why"),
    [
        (timedelta(hours=-1), None, "it is in the future"),
        (timedelta(hours=1), timedelta(hours=2), "not after since"),
        (timedelta(days=200), None, "kept for 90 days"),
    ],
)
def test_an_invalid_range_is_rejected(ledger: Ledger, ann: Operator, since: timedelta, until: timedelta | None, why: str) -> None:
    now = ledger.now()
    with pytest.raises(ValueError, match=why):
        ann.overview.activity(since=now - since, until=None if until is None else now - until)


@pytest.mark.req("Q-12")
@pytest.mark.parametrize(
    ("hours", "ended_hours_ago", "minutes"),
    [(1, 0, 1), (2, 0, 2), (24, 0, 20), (168, 0, 120), (2160, 0, 1440), (1, 24, 10), (1, 100, 60)],
)
def test_a_chart_has_at_most_90_points(hours: float, ended_hours_ago: float, minutes: int) -> None:
    end = NOW - timedelta(hours=ended_hours_ago)
    step = choose_step(end - timedelta(hours=hours), end, NOW)
    assert step == minutes
    assert hours * 60 / step <= MAX_POINTS
