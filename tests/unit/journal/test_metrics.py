"""Metrics: the measurements of a record, and the limit on label values."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from redrive.journal import Record
from redrive.journal.metrics import CATALOGUE, OTHER, LabelLimiter, measure

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def measurements_of(kind: str, **fields: Any) -> list[tuple[str, float, tuple[str, ...]]]:
    return [(one.metric.name, one.value, one.labels) for one in measure(Record(kind, NOW, fields))]


@pytest.mark.req("J-3")
def test_attempts_of_calls_and_jobs_are_measured() -> None:
    assert measurements_of("retry", operation="crm", attempt=1, latency_ms=250.0) == [
        ("redrive_attempts_total", 1, ("call", "crm", "retry")),
        ("redrive_attempt_seconds", 0.25, ("call", "crm")),
    ]
    assert measurements_of("success", operation="crm/orders", attempt=1, logical_date="2026-01-31") == [
        ("redrive_attempts_total", 1, ("partition", "crm/orders", "success"))
    ]
    assert measurements_of("giveup", operation="mail", attempt=5, reason="attempts", job_id="7") == [
        ("redrive_attempts_total", 1, ("job", "mail", "giveup")),
        ("redrive_giveups_total", 1, ("job", "mail", "attempts")),
    ]


@pytest.mark.req("J-3")
def test_a_call_that_never_began_is_a_giveup_and_no_attempt() -> None:
    assert measurements_of("giveup", operation="crm", attempt=0, reason="breaker_open") == [
        ("redrive_giveups_total", 1, ("call", "crm", "breaker_open"))
    ]


@pytest.mark.req("J-3")
def test_items_are_counted_with_their_batch_and_without_reasons() -> None:
    assert measurements_of("giveup", operation="tiles", item="t1", reason="whatever somebody wrote", attempts=3) == []
    assert measurements_of("batch_ended", operation="tiles", acknowledged=58, given_up=1, pending=0) == [
        ("redrive_batch_items_total", 58, ("tiles", "acknowledged")),
        ("redrive_batch_items_total", 1, ("tiles", "given_up")),
    ]


@pytest.mark.req("J-3")
def test_other_kinds_are_counted_as_events() -> None:
    assert measurements_of("lost_lease", operation="mail", job_id="7") == [("redrive_events_total", 1, ("lost_lease", "mail"))]
    assert measurements_of("ledger_trouble") == [("redrive_events_total", 1, ("ledger_trouble", "none"))]
    assert measurements_of("batch_step", operation="tiles", done=1) == []


@pytest.mark.req("J-3")
def test_label_values_are_limited() -> None:
    labels = LabelLimiter(max_values=2)
    assert [labels.limit_value("kind", value) for value in ("a", "b", "c", "a", "d", None)] == [
        "a",
        "b",
        OTHER,
        "a",
        OTHER,
        OTHER,
    ]
    assert labels.limit_value("state", "c") == "c"  # each label has its own limit


def test_metric_names_follow_prometheus_conventions() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert len(set(names)) == len(names)
    assert all(name.startswith("redrive_") for name in names)
    assert all(metric.name.endswith("_total") == (metric.kind == "counter") for metric in CATALOGUE)
    families = {name.removesuffix("_total") for name in names}
    assert len(families) == len(names)  # OpenMetrics names a counter without its suffix
