"""Jobs that another engine runs: their dead letters, and their rows while they wait for it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from redrive.ledger import Ledger, NewJob, mirrors
from redrive.ledger.mirrors import RUN_HEADER, FailedRun
from redrive.ledger.stats import failures

KEY = "crm:ann:1:sync:v1"


def failed_run(run: str = "run-1", *, reason: str = "stopped", attempts: int = 3) -> FailedRun:
    job = NewJob("crm.sync", KEY, b"{}", headers={RUN_HEADER: run}, tags={"order": "7"}, max_attempts=5)
    return FailedRun(job, attempts, None, "worker-1", "dead", reason, "Stop: no", "Stop")


def record(ledger: Ledger, run: FailedRun) -> int | None:
    return mirrors.record_failed(ledger.connections, run, ledger.max_payload)


@pytest.mark.req("E-9")
def test_a_failed_run_is_recorded_once_with_its_attempts(ledger: Ledger) -> None:
    job_id = record(ledger, failed_run())
    assert job_id is not None
    assert record(ledger, failed_run()) is None
    assert record(ledger, failed_run("run-2")) is None, "its dead letter is pending"
    (letter,) = ledger.dead_letters()
    assert (letter.kind, letter.key, letter.reason, letter.attempts, letter.job_id) == ("crm.sync", KEY, "stopped", 3, job_id)
    (attempt,) = ledger.attempts(job_id)
    assert (attempt.number, attempt.worker, attempt.error) == (3, "worker-1", "Stop: no")
    assert mirrors.recorded_runs(ledger.connections, [("crm.sync", KEY), ("crm.sync", "other")]) == {"run-1"}
    assert mirrors.recorded_runs(ledger.connections, []) == set()


@pytest.mark.req("E-9")
def test_a_discarded_run_does_not_come_back_and_a_later_one_does(ledger: Ledger) -> None:
    record(ledger, failed_run())
    ledger.discard([1], actor="ann", because="of no use")
    assert record(ledger, failed_run()) is None
    assert record(ledger, failed_run("run-2")) is not None
    assert [letter.status for letter in ledger.dead_letters(status=None)] == ["discarded", "pending"]


@pytest.mark.req("X-8")
def test_a_run_that_joins_is_added_to_the_pending_dead_letter(ledger: Ledger) -> None:
    job_id = record(ledger, failed_run("run-1", attempts=3))
    second = failed_run("run-2", reason="attempts", attempts=2)._replace(error="Stop: later", signature="Later", joins=True)
    assert record(ledger, second) == job_id
    assert record(ledger, second) is None, "a repeated write of the same failure"
    (letter,) = ledger.dead_letters()
    assert (letter.reason, letter.error, letter.signature, letter.attempts) == ("attempts", "Stop: later", "Later", 5)
    assert [(each.number, each.error) for each in ledger.attempts(job_id or 0)] == [(3, "Stop: no"), (5, "Stop: later")]
    job = ledger.get(job_id or 0)
    assert job is not None
    assert (job.state, job.dead_id) == ("dead", None), "it is not a replay"
    groups = failure_groups(ledger)
    assert (groups["Stop"], groups["Later"]) == (0, 1), "one dead letter is pending, of the newer cause"
    assert ledger.imbalance() == []


@pytest.mark.req("X-8")
def test_runs_that_are_recorded_at_the_same_time_join(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = record(ledger, failed_run("run-1", attempts=3))
    seen = iter([None])  # the second run has read the ledger before the first one was written
    read = mirrors._current_row
    monkeypatch.setattr(mirrors, "_current_row", lambda *args, **options: next(seen, read) and read(*args, **options))
    assert record(ledger, failed_run("run-2", attempts=2)._replace(joins=True)) == job_id
    (letter,) = ledger.dead_letters()
    assert letter.attempts == 5
    assert ledger.imbalance() == []


@pytest.mark.req("X-8")
def test_a_run_that_joins_finds_the_dead_letter_of_a_cancelled_replay(ledger: Ledger) -> None:
    record(ledger, failed_run())
    replay = ledger.replay([1], actor="ann", because="fixed").done[1]
    assert record(ledger, failed_run("run-2")._replace(joins=True)) is None, "its replay decides"
    ledger.control.cancel([replay], actor="ann", because="wrong")
    assert record(ledger, failed_run("run-3")._replace(joins=True)) == replay
    (letter,) = ledger.dead_letters(status=None)
    assert (letter.status, letter.job_id, letter.attempts) == ("pending", replay, 3)
    assert ledger.imbalance() == []


def failure_groups(ledger: Ledger) -> dict[str, int]:
    with ledger.reading() as connection:
        return {group.signature: group.pending for group in failures.pending_groups(connection, None, 10)} | {"Stop": 0}


@pytest.mark.req("E-9")
def test_a_job_that_waits_in_the_ledger_has_no_second_row(ledger: Ledger) -> None:
    ledger.submit(NewJob("crm.sync", KEY))
    assert record(ledger, failed_run()) is None
    assert mirrors.recorded_runs(ledger.connections, [("crm.sync", KEY)]) == set()


@pytest.mark.req("E-9")
def test_a_waiting_job_is_made_due_and_gets_the_attempts_of_the_engine(ledger: Ledger) -> None:
    ledger.submit(NewJob("crm.sync", KEY, delay=3600))
    assert ledger.claim({"crm.sync": 1}, worker="w") == []
    assert mirrors.make_due(ledger.connections, "crm.sync", KEY)
    assert not mirrors.make_due(ledger.connections, "crm.sync", KEY), "it is due"
    assert not mirrors.make_due(ledger.connections, "crm.sync", "other")
    (lease,) = ledger.claim({"crm.sync": 1}, worker="w")
    mirrors.set_attempts(ledger.connections, lease, 4)
    ledger.settle(lease.dead("attempts", error="down"))
    (letter,) = ledger.dead_letters()
    assert letter.attempts == 4


@pytest.mark.req("E-9")
def test_cancelled_jobs_since_a_time(ledger: Ledger) -> None:
    submitted = ledger.submit(NewJob("crm.sync", KEY))
    ledger.submit(NewJob("crm.other", KEY))
    ledger.control.cancel([submitted.id, submitted.id + 1], actor="ann", because="wrong")
    now = datetime.now(timezone.utc)
    minute = timedelta(minutes=1)
    assert mirrors.cancelled_since(ledger.connections, ["crm.sync"], now - minute) == [(submitted.id, "crm.sync", KEY)]
    assert mirrors.cancelled_since(ledger.connections, ["crm.sync"], now + minute) == []
