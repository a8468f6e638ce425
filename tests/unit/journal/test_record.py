"""Records of calls: one for each attempt, with all known fields."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import datetime, timezone

import pytest

from redrive import correlate, retry
from redrive.journal import Record, Ring
from redrive.testing import FakeClock

IDS = {
    name: f"{name}-1"
    for name in """request_id trace_id user_id org_id actor_type actor_key run_id module_id mission_id mission_instance_id
    stage_id event_id source event_type dead_letter_id""".split()
}


def test_a_record_is_frozen() -> None:
    record = Record("retry", datetime.now(timezone.utc), {})
    with pytest.raises(FrozenInstanceError):
        record.kind = "x"  # type: ignore[misc]


@pytest.mark.req("J-1")
def test_every_attempt_has_one_record_with_all_fields(redrive_clock: FakeClock, redrive_journal: Ring) -> None:
    failures = [ConnectionError("reset"), ConnectionResetError("again")]

    @retry(max_attempts=3, jitter=0, operation="crm.fetch", fields={"team": "sales", "attempt": "not to be replaced"})
    def fetch() -> str:
        redrive_clock.advance(0.5)
        if failures:
            raise failures.pop()
        return "ok"

    with correlate(**IDS):
        fetch()
    first, second, last = redrive_journal.records
    assert [record.kind for record in (first, second, last)] == ["retry", "retry", "recovered"]
    for number, record in enumerate((first, second, last), 1):
        assert IDS.items() <= record.fields.items()
        assert record.fields["operation"] == "crm.fetch"
        assert record.fields["attempt"] == number
        assert record.fields["max_attempts"] == 3
        assert record.fields["team"] == "sales"
        assert record.at.tzinfo is timezone.utc
    assert (first.fields["latency_ms"], first.fields["wait"]) == (500.0, 0.25)
    assert (first.fields["error_class"], first.fields["error"]) == ("ConnectionResetError", "again")
    assert first.fields["retryable"] is True
    assert (second.at - first.at).total_seconds() == pytest.approx(0.75)
    assert None not in last.fields.values()


@pytest.mark.req("J-1")
@pytest.mark.usefixtures("redrive_clock")
def test_a_giveup_record_has_its_reason(redrive_journal: Ring) -> None:
    @retry(max_attempts=2, operation="crm.fetch")
    def fetch() -> None:
        raise ConnectionError("reset")

    with pytest.raises(ConnectionError):
        fetch()
    again, gaveup = redrive_journal.records
    assert (again.kind, gaveup.kind) == ("retry", "giveup")
    assert (gaveup.fields["reason"], gaveup.fields["attempt"], gaveup.fields["error"]) == ("attempts", 2, "reset")


@pytest.mark.req("J-1")
@pytest.mark.usefixtures("redrive_clock")
def test_a_first_success_is_recorded_for_sinks_with_every(redrive_journal: Ring) -> None:
    @retry(operation="crm.fetch")
    def fetch() -> str:
        return "ok"

    fetch()
    (record,) = redrive_journal.records
    assert (record.kind, record.fields["attempt"]) == ("success", 1)


@pytest.mark.req("J-4")
@pytest.mark.usefixtures("redrive_clock")
def test_a_record_contains_no_secret(redrive_journal: Ring) -> None:
    @retry(max_attempts=2, operation="crm.fetch", fields={"api_key": "hunter2", "url": "https://ann:hunter2@crm/x?token=hunter2"})
    def fetch() -> None:
        raise ConnectionError("Authorization: Bearer hunter2")

    with correlate(session_token="hunter2"), pytest.raises(ConnectionError):
        fetch()
    assert len(redrive_journal.records) == 2
    assert "hunter2" not in repr(redrive_journal.records)
