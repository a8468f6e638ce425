"""The end of an attempt: rejected, final, released, or without effect."""

from __future__ import annotations

from asyncio import CancelledError
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from redrive import App, retry
from redrive.core.fault import Fault
from redrive.core.outage import Parking
from redrive.errors import Again, Blocked, Damaged, LeaseLost, LedgerRemoved, LedgerUnavailable, Stop, Unavailable
from redrive.partitions.model import PartitionLease, Release, Verdict
from redrive.partitions.work.attempt import ExtractionAttempt, ExtractionResult, verdict_or_release

from ..written import KEY

NOW = datetime(2026, 2, 1, 3, tzinfo=timezone.utc)
LEASE = PartitionLease(1, KEY, 3, "r-3", "retry", "retry", 2, None, None, None, None, 0, NOW + timedelta(minutes=1))


@dataclass
class Response:
    status_code: int
    headers: dict[str, str]


def new_attempt(**told: Any) -> ExtractionAttempt:
    app = App("sqlite:///never-opened.db", stores={"raw": {"type": "memory"}})
    app.dataset("crm", "orders", raw="raw", checks=[], customers=[], version="2", **told)(lambda partition, out: None)
    (one,) = app.datasets
    return ExtractionAttempt(one, LEASE)


def end(
    error: BaseException, *, stopping: bool = False, lost: bool = False, uncharged: int = 0, **told: Any
) -> Verdict | Release | None:
    one = new_attempt(**told)
    one.is_lost = lost
    one.lease = replace(one.lease, uncharged=uncharged)
    return verdict_or_release(ExtractionResult(one, None, error, 1.0), NOW, Parking(uncharged=20), is_stopping=stopping)


def end_charged(error: BaseException, **told: Any) -> Verdict:
    found = end(error, **told)
    assert isinstance(found, Verdict)
    return found


def given_back(error: BaseException, **told: Any) -> Release:
    found = end(error, **told)
    assert isinstance(found, Release)
    return found


def test_an_ordinary_error_is_a_rejection() -> None:
    found = end_charged(ConnectionError("no answer"))
    assert (found.run_id, found.decision, found.reason, found.final) == ("r-3", "rejected", "ConnectionError", False)
    assert (found.validator, found.version) == ("crm/orders", "2")
    assert found.message is not None
    assert found.message.startswith("ConnectionError: no answer")


def test_stop_is_final() -> None:
    assert end_charged(Stop("the customer has left")).final


def test_data_that_fits_no_schema_is_final() -> None:
    pydantic = pytest.importorskip("pydantic")
    with pytest.raises(pydantic.ValidationError) as wrong:
        pydantic.TypeAdapter(int).validate_python("x")
    assert (end_charged(wrong.value).reason, end_charged(wrong.value).final) == ("schema", True)
    assert not end_charged(ValueError("bad")).final


def test_not_ready_is_not_charged() -> None:
    found = given_back(Again("the report is not there yet", after=60, free=True))
    assert (found.cause, found.after) == ("not_ready", 60)
    assert end_charged(Again("odd", after=60)).after == 60


def test_a_rate_limit_is_not_charged() -> None:
    httpx2 = pytest.importorskip("httpx2")
    response = httpx2.Response(429, headers={"retry-after": "120"}, request=httpx2.Request("GET", "https://crm"))
    found = given_back(httpx2.HTTPStatusError("slow down", request=response.request, response=response))
    assert (found.cause, found.after) == ("rate_limited", 120)


@pytest.mark.req("P-10")
def test_a_rejected_credential_is_charged_unless_others_are_rejected_too() -> None:
    httpx2 = pytest.importorskip("httpx2")
    response = httpx2.Response(401, request=httpx2.Request("GET", "https://crm"))
    found = end_charged(httpx2.HTTPStatusError("who are you", request=response.request, response=response))
    assert (found.shared, found.final, found.signature is not None) == (True, False, True)
    assert end_charged(Unavailable("the lake is away", path="x", backend="raw")).shared
    blocked = end_charged(Blocked("the bill is not paid", until=NOW + timedelta(hours=1)))
    assert (blocked.shared, blocked.after) == (True, 3600)
    assert not end_charged(ConnectionError("no answer")).shared


@pytest.mark.req("P-10")
def test_a_block_of_the_whole_source_is_declared() -> None:
    found = given_back(Blocked("maintenance", until=NOW + timedelta(hours=1), systemic=True))
    assert (found.cause, found.after, found.signature) == ("systemic", 3600, "Blocked: maintenance")


@pytest.mark.req("P-10")
def test_attempts_that_are_not_charged_are_bounded() -> None:
    throttled = retry(on=lambda error: Fault("throttled", 7))
    assert given_back(ValueError("busy"), retry=throttled, uncharged=19).cause == "rate_limited"
    assert end_charged(ValueError("busy"), retry=throttled, uncharged=20).charged
    assert given_back(Blocked("maintenance", systemic=True), uncharged=19).cause == "systemic"
    assert end_charged(Blocked("maintenance", systemic=True), uncharged=20).charged
    assert end_charged(ConnectionError("no answer"), uncharged=20).charged
    assert given_back(Again("not there yet", free=True), uncharged=1000).cause == "not_ready", "asked for by the extraction"


def caused_by_ledger(error: BaseException) -> BaseException:
    error.__cause__ = LedgerUnavailable("too many connections")
    return error


@pytest.mark.req("P-10")
@pytest.mark.parametrize(
    "error",
    [
        LedgerUnavailable("away", sent=True),
        LedgerRemoved("the file was removed"),
        caused_by_ledger(ConnectionError("no answer")),
        caused_by_ledger(Unavailable("the lake is away", path="x", backend="raw")),
        caused_by_ledger(Again("later", after=60)),
        caused_by_ledger(SystemExit(1)),
        ExceptionGroup("tasks", [LedgerUnavailable("away")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_fault_of_the_ledger_does_not_count(error: BaseException) -> None:
    permanent = retry(on=lambda _error: Fault("permanent"))
    rules: tuple[dict[str, Any], ...] = ({}, {"retry": permanent})
    for options in rules:
        waits = []
        for uncharged in (0, 1, 19):
            found = given_back(error, uncharged=uncharged, **options)
            assert (found.cause, found.signature) == ("ledger", None)
            waits.append(found.after)
        assert waits == [1.0, 2.0, 60.0]
        bounded = end_charged(error, uncharged=20, **options)
        assert (bounded.charged, bounded.signature, bounded.shared, bounded.final) == (True, None, False, False)


def test_decisions_of_an_extraction_hold_during_a_ledger_outage() -> None:
    assert end_charged(caused_by_ledger(Stop("the customer has left"))).final
    assert end_charged(caused_by_ledger(Blocked("the bill is not paid"))).shared
    assert given_back(caused_by_ledger(Again("not there yet", free=True))).cause == "not_ready"


def test_a_catch_all_rule_is_not_evidence_of_an_outage() -> None:
    assert end_charged(KeyError("bug"), retry=retry(on=Exception)).signature is None
    assert end_charged(ConnectionError("no answer"), retry=retry(on=Exception)).signature is not None
    assert end_charged(KeyError("declared"), retry=retry(on=KeyError)).signature is not None


def test_rules_of_the_dataset_classify_errors() -> None:
    rules = retry(on=(lambda error: Fault("permanent") if "closed" in str(error) else None, ValueError))
    assert end_charged(ValueError("closed account"), retry=rules).final
    assert not end_charged(ValueError("odd"), retry=rules).final
    assert end_charged(KeyError("odd"), retry=rules).final is False, "what nobody knows may be mended"
    throttled = retry(on=lambda error: Fault("throttled", 7))
    assert given_back(ValueError("busy"), retry=throttled).after == 7

    def broken(error: Exception) -> bool:
        raise RuntimeError

    assert not end_charged(ValueError("odd"), retry=retry(on=broken)).final


def test_a_cancelled_extraction_is_released_when_the_worker_stops() -> None:
    assert given_back(CancelledError(), stopping=True).cause == "stopped"
    assert end_charged(CancelledError()).reason == "CancelledError"


def test_a_lost_lease_has_no_effect() -> None:
    assert end(LeaseLost("gone"), lost=True) is None
    assert end(CancelledError(), lost=True) is None
    assert end_charged(LeaseLost("of somebody else's")).decision == "rejected"


class Evil(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_that_raises_when_examined_is_a_rejection() -> None:
    found = end_charged(Evil())
    assert (found.reason, found.final) == ("Evil", False)


def test_damaged_data_and_the_end_of_the_process_are_rejections() -> None:
    assert end_charged(Damaged("gone", path="x", backend="raw")).reason == "damaged"
    assert end_charged(SystemExit(3)).reason == "SystemExit"


def test_secrets_are_redacted() -> None:
    assert "hunter2" not in str(end_charged(ValueError("password=hunter2")))
