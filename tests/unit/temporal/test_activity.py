"""How a job is written as an activity, and read again."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from temporalio.exceptions import ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

from redrive import App, Temporal, retry
from redrive.ledger.mirrors import RUN_HEADER
from redrive.ledger.model import NewJob
from redrive.temporal.activity import ActivityEnvelope, ActivityRef, start_options
from redrive.temporal.attempt import Notes
from redrive.temporal.failure import FAILURE_TYPE, FailureDetails

UTC = timezone.utc
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ENGINE = Temporal("localhost:7233", task_queue="shop", heartbeat=3)


def test_an_envelope_keeps_all_that_a_dead_letter_needs() -> None:
    job = NewJob(
        *("receipts.send", "shop:ann:1:receipt:v1", b"{}"),
        priority=-1,
        max_attempts=3,
        deadline=NOW,
        ids={"request_id": "r-1"},
        headers={"a": "b"},
        tags={"order": "1"},
        tenant="ann",
        keep=5.0,
    )
    envelope = ActivityEnvelope.decode(ActivityEnvelope.of(job, 7, 8).encode())
    assert (envelope.ledger_job, envelope.dead_id) == (7, 8)
    again = envelope.new_job("receipts.send", b"{}", "run-1")
    assert again == job._replace(headers={"a": "b", RUN_HEADER: "run-1"})
    lease = envelope.lease("receipts.send", b"{}", 2, 3, NOW)
    assert (lease.attempt, lease.fence, lease.key, lease.ids, lease.deadline) == (2, 3, job.key, {"request_id": "r-1"}, NOW)


def test_fields_of_a_newer_envelope_are_ignored() -> None:
    assert ActivityEnvelope.decode(b'{"key": "k", "new": 1}') == ActivityEnvelope("k")


def test_options_of_an_activity() -> None:
    app = App("sqlite://")

    @app.command("receipts.send", retry=retry(max_attempts=3, backoff_base=2, backoff_max=30, attempt_timeout=60))
    async def send() -> None: ...

    job = NewJob(
        "receipts.send", "k", priority=2, due=NOW + timedelta(seconds=10), deadline=NOW + timedelta(seconds=70), tenant="ann"
    )
    options = start_options(ENGINE, send.job_type, job, NOW)
    assert options["task_queue"] == "shop-async"
    assert options["start_delay"] == timedelta(seconds=10)
    assert options["schedule_to_close_timeout"] == timedelta(seconds=60), "the server counts from the end of the delay"
    assert options["start_to_close_timeout"] == timedelta(seconds=65), "the worker's own timeout comes first"
    assert options["heartbeat_timeout"] == timedelta(seconds=3)
    assert (options["priority"].priority_key, options["priority"].fairness_key) == (5, "ann")
    policy = options["retry_policy"]
    assert (policy.initial_interval, policy.maximum_interval) == (timedelta(seconds=2), timedelta(seconds=30))
    long = start_options(ENGINE, send.job_type, job._replace(tenant="é" * 60), NOW)["priority"].fairness_key
    assert len(long.encode()) <= 64


def test_a_longest_wait_beyond_what_the_server_takes_is_lowered() -> None:
    @App("sqlite://").command("receipts.send", retry=retry(max_attempts=1, backoff_max=1e300))
    def send() -> None: ...

    policy = start_options(ENGINE, send.job_type, NewJob("receipts.send", "k"), NOW)["retry_policy"]
    assert (policy.maximum_attempts, policy.maximum_interval) == (0, timedelta(days=3650))


def test_a_job_id_is_an_activity_and_its_run() -> None:
    ref = ActivityRef("shop/a/k#1", "run")
    assert ActivityRef.parse(str(ref)) == ref
    assert [ActivityRef.parse(text) for text in ("17", "#", "a#", "#b")] == [None] * 4


def test_notes_survive_a_heartbeat() -> None:
    notes = Notes(ended=2, uncharged=1, progress=(0.5, "half"), checkpoint='{"page":3}')
    assert Notes.of([notes.as_details()]) == notes
    assert Notes.of([]) == Notes.of(["of another program"]) == Notes()


def test_reasons_of_failures_that_only_the_server_knows() -> None:
    own = FailureDetails("stopped", "Stop: no", "Stop", attempts=2)
    reported = ApplicationError("Stop: no", own.as_details(), type=FAILURE_TYPE, non_retryable=True)
    assert FailureDetails.of(reported) == own

    def timeout(kind: TimeoutType) -> FailureDetails:
        return FailureDetails.of(ActivityTimeout("late", type=kind, last_heartbeat_details=[]))

    assert timeout(TimeoutType.SCHEDULE_TO_CLOSE).reason == "deadline"
    assert timeout(TimeoutType.HEARTBEAT).reason == "crashed_worker"
    assert FailureDetails.of(ApplicationError("no", type="Other")).reason == "not_retryable"
    assert FailureDetails.of(None).reason == "not_retryable"
