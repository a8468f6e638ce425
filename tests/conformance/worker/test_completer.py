"""The end of jobs that do not simply succeed: exhausted, ended by a control exception, or with an unstorable result."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from redrive import Again, Blocked, Stop, current
from redrive.ledger import Lease, Ledger, NewJob
from redrive.worker.job_type import Undecodable, Unstorable
from redrive.worker.worker import Worker

from .world import EXECUTIONS, for_execution, kind, record_log, submit, until, wait_for_jobs

NEVER = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))
"""UTC has no such time, so neither database can store it."""


@pytest.mark.req("W-3")
@pytest.mark.parametrize(("spent", "shown"), [("dead", "dlq"), ("blocked", "blocked")])
def test_an_exhausted_job_ends_as_its_job_type_declares(ledger: Ledger, spent: str, shown: str) -> None:
    def work(lease: Lease) -> None:
        raise ConnectionError(f"no answer for {lease.key}")

    with record_log() as records, Worker(ledger, [kind("mail", work, on_exhausted=spent)]) as worker:
        (job,) = wait_for_jobs(ledger, *submit(ledger, "mail"))
        until(lambda: worker.status.dead == 1)
    assert (job.shown, job.reason, job.attempts) == (shown, "attempts", 3)
    (letter,) = ledger.dead_letters()
    assert letter.signature == "ConnectionError: no answer for shop:ann:#:mail:v#"
    assert [record.kind for record in records] == ["retry", "retry", "giveup" if spent == "dead" else "blocked"]


@pytest.mark.req("J-1")
def test_the_log_record_of_a_dead_job_has_the_id_of_its_dead_letter(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    def work(lease: Lease) -> None:
        raise Stop("no such order")

    caplog.set_level("INFO", "redrive")
    with record_log() as records, Worker(ledger, [kind("mail", work)]) as worker:
        wait_for_jobs(ledger, *submit(ledger, "mail"))
        until(lambda: worker.status.dead == 1 and bool(records))
        (letter,) = ledger.dead_letters()
        ledger.replay([letter.id], actor="ann", because="again")
        until(lambda: len(records) == 2)
    assert [record.fields["dlq_id"] for record in records] == [str(letter.id)] * 2, "a replay has the same"
    extras = [entry.redrive["dlq_id"] for entry in caplog.records if hasattr(entry, "redrive")]
    assert extras == [str(letter.id)] * 2
    assert f"giving up: stopped (dead letter {letter.id})" in caplog.text


@pytest.mark.req("J-1")
def test_a_job_whose_last_attempt_was_lost_is_logged_and_counted(ledger: Ledger) -> None:
    (job_id,) = submit(ledger, "mail", max_attempts=1)
    assert ledger.claim({"mail": 1}, worker="gone", lease=0.001)
    with record_log() as records, Worker(ledger, [kind("mail", lambda lease: None)]) as worker:
        until(lambda: worker.status.dead == 1)
    (letter,) = ledger.dead_letters()
    (record,) = [record for record in records if record.kind == "giveup"]
    fields = {name: record.fields[name] for name in ("operation", "job_id", "attempt", "reason", "dlq_id")}
    wanted = {"operation": "mail", "job_id": str(job_id), "attempt": 1, "reason": "attempts", "dlq_id": str(letter.id)}
    assert fields == wanted


@pytest.mark.req("J-1", "Q-8")
def test_an_attempt_that_lost_its_lease_is_not_logged_as_a_dead_letter(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    def work(lease: Lease) -> None:
        if lease.fence == 1:
            ledger.settle(lease.again())  # as if another worker had taken the job
        current().step("charge", int)

    caplog.set_level("INFO", "redrive")
    with record_log() as records, Worker(ledger, [kind("mail", work)]) as worker:
        (job,) = wait_for_jobs(ledger, *submit(ledger, "mail"))
        until(lambda: "late" in [record.kind for record in records])
    assert (job.state, ledger.dead_letters(), worker.status.dead) == ("done", [], 0)
    assert not {"giveup", "retry"} & {record.kind for record in records}
    assert f"mail job {job.id}: this attempt lost its lease, and another worker has the job now" in caplog.text
    assert "giving up" not in caplog.text


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (Stop("no such order"), "dlq", "stopped"),
        (Blocked("waits for payment"), "blocked", "waits for payment"),
        (Blocked("until when?", until=NEVER), "blocked", "until when?"),
        (Undecodable("order_id is missing"), "dlq", "undecodable"),
        (Unstorable("its result is no number"), "dlq", "result"),
    ],
)
def test_control_exceptions_decide_the_end_of_a_job(ledger: Ledger, error: Exception, state: str, reason: str) -> None:
    def work(lease: Lease) -> None:
        raise error

    with Worker(ledger, [kind("mail", work)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "mail"))
    assert (job.shown, job.reason, job.attempts) == (state, reason, 1)


class Unreadable(Exception):
    @property
    def retry_at(self) -> datetime:
        raise ZeroDivisionError


def test_an_error_that_raises_when_examined_ends_the_job(ledger: Ledger) -> None:
    def work(lease: Lease) -> None:
        raise Unreadable

    with Worker(ledger, [kind("mail", work)]):
        ledger.submit(NewJob("mail", "a", max_attempts=1))
        until(lambda: ledger.counts()["mail"].dead == 1)
    (letter,) = ledger.dead_letters()
    assert (letter.reason, letter.error) == ("attempts", "Unreadable; deciding about it raised ZeroDivisionError: ")


def test_a_job_blocked_until_a_time_is_retried_then(ledger: Ledger) -> None:
    def work(lease: Lease) -> None:
        if lease.dead_id is None:
            raise Blocked("waits", until=datetime.now(timezone.utc) + timedelta(seconds=0.2))

    with Worker(ledger, [kind("mail", work)]):
        submit(ledger, "mail")
        until(lambda: ledger.counts()["mail"].done == 1)


def test_again_with_free_does_not_count_as_an_attempt(ledger: Ledger) -> None:
    def work(lease: Lease) -> None:
        if lease.fence < 6:
            raise Again("not yet", after=0.01, free=True)

    with Worker(ledger, [kind("mail", work)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "mail"))
    assert (job.state, job.attempts, job.fence) == ("done", 1, 6)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_system_exit_ends_one_attempt_and_not_the_worker(ledger: Ledger, execution: str) -> None:
    def work(lease: Lease) -> None:
        if lease.attempt == 1:
            raise SystemExit(3)

    with Worker(ledger, [kind("mail", for_execution(execution, work), execution)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "mail"))
    assert (job.state, job.attempts) == ("done", 2)
    assert "not the worker" in (ledger.attempts(job.id)[0].error or "")


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_result_that_is_too_large_is_a_dead_letter_with_the_reason(ledger: Ledger, execution: str) -> None:
    large = b"x" * (ledger.max_payload + 1)
    with Worker(ledger, [kind("mail", for_execution(execution, lambda lease: large), execution)]):
        (job,) = wait_for_jobs(ledger, *submit(ledger, "mail"))
    assert (job.shown, job.reason, job.attempts) == ("dlq", "result", 1)
    assert "the work was done" in (job.error or "")
