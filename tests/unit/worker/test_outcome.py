"""The outcome of an attempt, a pure function."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Again, Blocked, RetryPolicy, Stop, retry
from redrive.core.classification.classify import classify
from redrive.engine.settings import RetrySettings
from redrive.errors import BreakerOpen, KeyBusy, KeyFailed, LedgerError, LedgerUnavailable
from redrive.ledger import Lease
from redrive.ledger.validation import check_settlements
from redrive.worker.job_type import JobType, Undecodable, Unstorable
from redrive.worker.outcome import (
    MAX_CAUSES,
    MAX_FRAMES,
    JobOutcome,
    after_deadline,
    after_failure,
    after_success,
    describe_error,
    is_ledger_fault,
    refunded_after_ledger_fault,
    refunded_in_outage,
)

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
POLICY = RetryPolicy(max_attempts=3, backoff_base=10.0, backoff_max=100.0, jitter=0.0)


def kind(spent: Any = "dead", **options: Any) -> JobType:
    return JobType("mail", lambda lease: None, "thread", RetrySettings().using(POLICY, options), on_exhausted=spent)


def lease(attempt: int = 1, **fields: Any) -> Lease:
    blank: dict[str, Any] = {
        "job_id": 7, "fence": 1, "kind": "mail", "key": "a:b:c:d:v1", "attempt": attempt, "crashes": 0, "max_attempts": None,
        "version": 1, "dead_id": None, "due_stored": NOW, "deadline_stored": None, "ids_stored": None, "headers_stored": None,
        "payload": b"",
    }  # fmt: skip
    return Lease(**blank | fields)


def end(error: BaseException, of: JobType | None = None, at: Lease | None = None) -> JobOutcome:
    return after_failure(of or kind(), at or lease(), error, now=NOW, draw=0.5)


class Busy(Exception):
    """An error of the user."""


class Odd(Exception):
    """Another error of the user."""


@pytest.mark.req("W-3")
def test_an_unknown_error_is_retried_since_a_deploy_may_fix_it() -> None:
    found = end(Odd("boom"))
    assert (found.settlement.outcome, found.settlement.after, found.settlement.charged) == ("again", 10.0, True)
    assert (found.record, found.wait) == ("retry", 10.0)


@pytest.mark.req("W-3")
@pytest.mark.parametrize("error", [KeyFailed("no", key="k", error={}), PermissionError("no")])
def test_a_permanent_error_is_a_dead_letter_immediately(error: Exception) -> None:
    found = end(error)
    if classify(error).kind == "permanent":
        assert (found.settlement.outcome, found.settlement.reason) == ("dead", "not_retryable")


def test_an_error_that_on_does_not_name_is_not_retried() -> None:
    assert end(Odd(), kind(on=Busy)).settlement.reason == "not_retryable"
    assert end(Busy(), kind(on=Busy)).settlement.outcome == "again"
    assert end(Busy(), kind(on=lambda error: False)).settlement.reason == "not_retryable"
    assert end(Odd(), kind(on=(Busy, classify))).settlement.outcome == "again"


@pytest.mark.req("W-3")
@pytest.mark.parametrize(("spent", "outcome"), [("dead", "dead"), ("blocked", "blocked")])
def test_exhausted_jobs_end_as_the_job_type_declares(spent: str, outcome: str) -> None:
    found = end(Odd("boom 7"), kind(spent), lease(3))
    assert (found.settlement.outcome, found.settlement.reason) == (outcome, "attempts")
    assert found.settlement.signature == "Odd: boom #"


def test_the_jobs_own_max_attempts_take_precedence() -> None:
    assert end(Odd(), at=lease(3, max_attempts=5)).settlement.outcome == "again"
    assert end(Odd(), at=lease(1, max_attempts=1)).settlement.reason == "attempts"


@pytest.mark.req("W-2")
def test_control_exceptions_decide_the_outcome() -> None:
    again = end(Again("not yet", after=timedelta(minutes=2))).settlement
    assert (again.outcome, again.after, again.charged) == ("again", 120.0, True)
    free = end(Again(after=1, free=True), at=lease(3)).settlement
    assert (free.outcome, free.after, free.charged) == ("again", 1.0, False)
    assert end(Again(after=1), at=lease(3)).settlement.reason == "attempts"
    assert end(Stop("no such order")).settlement[3] == "dead"
    until = NOW + timedelta(days=1)
    blocked = end(Blocked("waits for payment", until=until)).settlement
    assert (blocked.outcome, blocked.reason, blocked.until) == ("blocked", "waits for payment", until)


def test_an_out_of_range_date_does_not_stop_the_worker() -> None:
    far = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))  # of the next millennium, in UTC
    for until, stored in ((far, datetime.max.replace(tzinfo=timezone.utc)), ("monday", None), (NOW.date(), None)):
        found = end(Blocked("the bank is closed", until=until)).settlement  # type: ignore[arg-type]
        assert (found.outcome, found.until) == ("blocked", stored)
        check_settlements([found], 100)


def test_a_payload_that_does_not_fit_is_undecodable() -> None:
    assert end(Undecodable("order_id is missing")).settlement.reason == "undecodable"


def test_the_stored_error_of_an_undecodable_payload_has_no_module_and_no_frames() -> None:
    def reject(error: Exception) -> str:
        try:
            raise error
        except Exception as raised:
            return str(end(raised).settlement.error)

    assert reject(Undecodable("order_id is missing")) == "Undecodable: order_id is missing"
    assert reject(Stop("the customer is gone")).startswith("Stop: the customer is gone\n  ")


def test_payloads_that_do_not_fit_for_one_reason_have_one_signature_and_are_not_an_outage() -> None:
    one, other = (end(Undecodable("order_id isn't there", f"Stored: {came}")) for came in ('{"ids":[1,2]}', '{"a":null}'))
    assert one.settlement.signature == other.settlement.signature == "Undecodable: order_id isn't there"
    assert (one.verdict, one.signature) == ("charged", None)
    assert "Stored" in str(one.settlement.error)


@pytest.mark.req("L-7", "W-3")
@pytest.mark.parametrize(
    ("error", "options", "verdict"),
    [
        (ConnectionError("no answer"), {}, "evidence"),
        (TimeoutError(), {}, "evidence"),
        (BreakerOpen("mail", retry_at=NOW), {}, "evidence"),
        (Odd("boom"), {}, "charged"),
        (PermissionError("no"), {}, "charged"),
        (SystemExit(1), {}, "charged"),
        (Again("not yet"), {}, "charged"),
        (KeyBusy("busy", key="k", retry_at=NOW), {}, "charged"),
        (Stop("no"), {}, "charged"),
        (Odd("boom"), {"on": Odd}, "evidence"),
        (Odd("boom"), {"on": Exception}, "charged"),
        (ConnectionError("no answer"), {"on": Exception}, "evidence"),
        (Odd("boom"), {"on": (Odd, Exception)}, "evidence"),
        (Odd("boom"), {"on": (lambda error: isinstance(error, Odd) or None, Exception)}, "evidence"),
    ],
)
def test_only_transient_or_declared_faults_are_evidence_of_an_outage(
    error: BaseException, options: dict[str, Any], verdict: str
) -> None:
    assert end(error, kind(**options)).verdict == verdict


@pytest.mark.req("L-7")
def test_a_call_that_must_not_be_repeated_counts_in_an_outage() -> None:
    assert end(ConnectionError("no answer")).can_be_refunded
    assert end(ConnectionError("no answer"), at=lease(3)).can_be_refunded, "its last attempt"
    unsafe = end(ConnectionResetError("after it was sent"), kind(idempotent=False))
    assert (unsafe.reason, unsafe.verdict, unsafe.can_be_refunded) == ("not_idempotent", "evidence", False)
    late = end(ConnectionError("no answer"), at=lease(deadline_stored=NOW))
    assert (late.reason, late.can_be_refunded) == ("deadline", False)


def test_a_job_whose_result_cannot_be_stored_is_not_retried() -> None:
    found = end(Unstorable("mail has run, but its result cannot be stored"))
    assert (found.settlement.outcome, found.settlement.reason, found.signature) == ("dead", "result", None)
    assert found.settlement.error == "mail has run, but its result cannot be stored"
    assert found.settlement.signature == "Unstorable: mail has run, but its result cannot be stored"


def test_stored_frames_start_in_the_users_code() -> None:
    def boom() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        retry(max_attempts=1).call(boom)
    inside = caught.value.__traceback__
    assert inside is not None
    caught.value.__traceback__ = inside.tb_next  # as a worker sees it: the outer frames are Redrive's
    places = describe_error(caught.value).splitlines()[1:]
    assert [place.rpartition(" in ")[2] for place in places if ":" in place] == ["boom"]


def test_stored_frames_of_a_client_s_error_have_the_line_that_called_it() -> None:
    def fetch_rates() -> None:
        urllib.request.urlopen("http://127.0.0.1:1/", timeout=1)

    with pytest.raises(OSError, match="refused") as caught:
        fetch_rates()
    places = describe_error(caught.value).splitlines()[2:]
    assert len(places) == MAX_FRAMES
    assert places[1].endswith(" in fetch_rates"), "the call is stored beside the innermost frames"
    assert places[-1].endswith(" in do_open")


@pytest.mark.parametrize(
    "error",
    [
        KeyBusy("busy", key="k", retry_at=NOW + timedelta(seconds=55)),
        BreakerOpen("open", retry_at=NOW + timedelta(seconds=55)),
    ],
)
def test_retry_at_is_a_floor(error: Exception) -> None:
    found = end(error).settlement
    assert (found.outcome, found.after) == ("again", 55.0)


def test_the_exhaustion_of_an_inner_layer_is_not_final() -> None:
    @retry(max_attempts=2, backoff_base=0.0, jitter=0.0)
    def inner() -> None:
        raise ConnectionError("no answer")

    with pytest.raises(ConnectionError) as caught:
        inner()
    assert end(caught.value).settlement.outcome == "again"


def test_a_job_ends_if_the_next_attempt_would_miss_its_deadline() -> None:
    soon, later = NOW + timedelta(seconds=9), NOW + timedelta(seconds=11)
    assert end(Odd(), at=lease(deadline_stored=soon)).settlement.reason == "deadline"
    assert end(Odd(), at=lease(deadline_stored=later)).settlement.outcome == "again"
    assert after_deadline(lease(deadline_stored=soon)).settlement.reason == "deadline"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_system_exit_ends_the_attempt_only(error: BaseException) -> None:
    found = end(error).settlement
    assert found.outcome == "again"
    assert "ends this attempt, not the worker" in (found.error or "")


def test_a_rule_or_backoff_that_raises_is_ignored() -> None:
    def broken(*_: object) -> float:
        raise ZeroDivisionError

    assert end(Odd(), kind(on=broken)).settlement.outcome == "dead"  # its rules exclude it
    assert end(Odd(), kind(backoff=broken)).settlement.after == 10.0


def test_a_job_that_is_not_idempotent_is_not_retried() -> None:
    assert end(Odd(), kind(idempotent=False)).settlement.reason == "not_idempotent"


def test_a_result_that_cannot_be_stored_is_a_dead_letter() -> None:
    assert after_success(lease(), b"12345", 5).settlement == lease().done(b"12345")
    large = after_success(lease(), b"123456", 5).settlement
    assert (large.outcome, large.reason) == ("dead", "result")
    assert "6 bytes" in (large.error or "")
    assert after_success(lease(), {"a": 1}, 5).settlement.reason == "result"  # type: ignore[arg-type]


@pytest.mark.req("L-7")
def test_a_failure_in_an_outage_does_not_count() -> None:
    last = end(ConnectionError("no answer"), at=lease(3))
    assert last.settlement.outcome == "dead"
    spared = refunded_in_outage(kind(), lease(3), last, draw=0.0).settlement
    assert (spared.outcome, spared.charged, spared.reason) == ("again", False, "parked")


def test_a_stored_error_has_its_cause_and_frames() -> None:
    def work() -> None:
        try:
            raise KeyError("x")
        except KeyError as error:
            raise Odd("boom") from error

    with pytest.raises(Odd) as caught:
        work()
    said = end(caught.value).settlement.error or ""
    assert said.startswith(f"{__name__}.Odd: boom\nbecause of KeyError")
    assert "in work" in said


ERRORS: list[Callable[[], BaseException]] = [
    Odd, lambda: Again(after=3), lambda: Again(free=True), lambda: Stop("x"), lambda: Blocked("x"), lambda: Undecodable("x"),
    lambda: ConnectionError("x"), lambda: SystemExit(1), lambda: KeyBusy("x", key="k", retry_at=NOW),
]  # fmt: skip


@given(st.sampled_from(ERRORS), st.integers(1, 9), st.integers(1, 9), st.floats(0, 1), st.sampled_from(["dead", "blocked"]))
def test_every_failure_has_an_outcome_and_counted_ones_are_bounded(
    error: Callable[[], BaseException], attempt: int, most: int, draw: float, spent: str
) -> None:
    found = after_failure(kind(spent), lease(attempt, max_attempts=most), error(), now=NOW, draw=draw).settlement
    assert found.outcome in ("again", "dead", "blocked")
    assert found.after >= 0
    if found.outcome == "again" and found.charged:
        assert attempt < most


@pytest.mark.req("L-7")
@pytest.mark.parametrize("attempt", [1, 3, 100])
def test_a_failure_of_the_ledger_does_not_count(attempt: int) -> None:
    chosen = kind(on=KeyError)
    for error in (LedgerUnavailable("too many connections"), caused_by(LedgerUnavailable("away", sent=True))):
        found = end(error, chosen, lease(attempt))
        assert found.is_ledger_fault
        assert found.can_be_refunded
        assert found.signature is None, "no evidence of an outage of what the job calls"
        waits = []
        for uncharged in (0, 1, 10):
            spared = refunded_after_ledger_fault(lease(attempt), found, uncharged)
            assert (spared.settlement.outcome, spared.settlement.charged, spared.reason) == ("again", False, "ledger")
            waits.append(spared.settlement.after)
        assert waits == [1.0, 2.0, 60.0]


def test_a_group_of_errors_is_the_ledgers_if_all_of_them_are() -> None:
    away, other = LedgerUnavailable("away"), ConnectionError("no answer")
    assert is_ledger_fault(ExceptionGroup("tasks", [away, ExceptionGroup("more", [caused_by(away)])]))
    assert not is_ledger_fault(ExceptionGroup("tasks", [away, other]))
    assert not is_ledger_fault(other)
    nested: Exception = away
    for _ in range(MAX_CAUSES + 1):
        nested = ExceptionGroup("deep", [nested])
    assert not is_ledger_fault(nested), "bounded"


def test_a_job_that_may_not_run_twice_ends_where_the_ledger_may_have_executed_its_statement() -> None:
    once = kind(idempotent=False)
    assert end(LedgerUnavailable("away", sent=True), once).reason == "not_idempotent"
    assert end(LedgerUnavailable("away", sent=False), once).settlement.outcome == "again"


def test_a_deadline_holds_while_the_ledger_cannot_be_used() -> None:
    found = end(LedgerUnavailable("away"), at=lease(deadline_stored=NOW + timedelta(seconds=1)))
    assert found.reason == "deadline"


def test_a_mistake_in_the_use_of_the_ledger_is_the_jobs() -> None:
    assert end(LedgerError("the address is not a valid Postgres address")).reason == "not_retryable"


def caused_by(cause: Exception) -> Exception:
    error = ValueError("cannot save")
    error.__cause__ = cause
    return error
