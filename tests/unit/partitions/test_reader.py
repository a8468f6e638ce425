"""Readings, and the gaps with their reasons."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import Any

import pytest

from redrive.errors import Incomplete
from redrive.partitions import Gap, Reading
from redrive.partitions.model import PartitionView
from redrive.partitions.reader import explain_gap

from .written import KEY, written_run

TODAY = date(2026, 2, 1)
AT = datetime(2026, 2, 1, 4, tzinfo=timezone.utc)


def facts(**known: Any) -> PartitionView:
    given: dict[str, Any] = {
        "id": 1, "partition": KEY, "status": "pending", "shade": "pending", "current_run_id": None, "current_raw_id": None,
        "current_attempt_no": 0, "record_count": None, "attempt_count": 0, "dispatch_count": 0, "last_verdict": None,
        "verdict_at": None, "reason": None, "error": None, "updated_at": AT,
    }  # fmt: skip
    return PartitionView(**{**given, **known})


REJECTED: dict[str, Any] = {
    "status": "failed", "attempt_count": 2, "last_verdict": "rejected", "reason": "row_count", "error": "0 rows\nmore",
}  # fmt: skip


@pytest.mark.req("P-11")
@pytest.mark.parametrize(
    ("known", "why", "says"),
    [
        (None, "never_run", "not queued so far by a schedule or a backfill"),
        (facts(lane="fresh", next_at=AT), "never_run", "queued in lane fresh, due 2026-02-01T04:00:00+00:00"),
        (facts(run_id="r-1"), "running", "run r-1 is running"),
        (
            facts(**REJECTED, lane="retry", next_at=AT),
            "failed",
            "queued in lane retry, due 2026-02-01T04:00:00+00:00; attempt 2 was rejected: row_count (0 rows)",
        ),
        (
            facts(**REJECTED, terminal="6 of 6 attempts"),
            "terminal",
            "gave up: 6 of 6 attempts; attempt 2 was rejected: row_count (0 rows)",
        ),
        (facts(paused="until the contract is signed"), "paused", "paused: until the contract is signed"),
    ],
)
def test_each_gap_names_its_reason(known: PartitionView | None, why: str, says: str) -> None:
    assert explain_gap(KEY, known, TODAY) == Gap(KEY, why, says)  # type: ignore[arg-type]


def test_a_future_day_is_a_gap() -> None:
    assert explain_gap(KEY, None, date(2026, 1, 30)).detail == "the day is in the future"


def test_rows_and_completeness() -> None:
    one, other = written_run([{"n": 1}]), written_run([{"n": 2}, {"n": 3}])
    reading = Reading([*one.files, *other.files], [])
    assert list(reading.rows()) == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert reading.complete() is reading
    assert repr(reading) == "<Reading: 2 files, 0 days missing>"


@pytest.mark.req("P-11")
def test_complete_raises_for_missing_days() -> None:
    gaps = [explain_gap(KEY, None, TODAY), explain_gap(KEY, facts(run_id="r-1"), TODAY)]
    with pytest.raises(
        Incomplete, match=r"2 days are missing \(1 never run, 1 running\); first crm/acme/orders/2026-01-31"
    ) as found:
        Reading([], gaps).complete()
    assert found.value.gaps == gaps
