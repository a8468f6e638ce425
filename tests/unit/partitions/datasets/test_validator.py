"""The validator: one verdict from all checks, including those that raise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from redrive.errors import LedgerUnavailable, Stop, Unavailable
from redrive.partitions import Check, Finding, Raw, not_null, row_count, schema, unique
from redrive.partitions.datasets.validator import Validator
from redrive.partitions.model import Verdict
from redrive.partitions.raw.files import File, load_raw
from redrive.partitions.raw.manifest import run_folder
from redrive.partitions.raw.writer import RunWriter
from redrive.storage import Store
from redrive.storage.memory import Memory

from ..written import KEY, NOW, written_run

ROWS = [{"id": 1}, {"id": 2}]


def run_validator(*checks: Check, rows: list[dict[str, Any]] = ROWS) -> Verdict:
    return Validator("crm/orders", "3", checks).validate(written_run(rows))


def no_negative_ids(raw: Raw) -> bool:
    return all(row["id"] >= 0 for row in raw.rows())


@pytest.mark.req("P-13")
def test_valid_data_is_accepted() -> None:
    verdict = run_validator(row_count(min=1), unique("id"), no_negative_ids)
    assert (verdict.decision, verdict.reason, verdict.message, verdict.final) == ("accepted", None, None, False)
    assert (verdict.validator, verdict.version, verdict.record_count, verdict.run_id) == ("crm/orders", "3", 2, "r-1")
    assert verdict.checks == (
        {"name": "row_count", "ok": True, "value": 2, "limit": {"min": 1}, "detail": "2 rows; at least 1 wanted"},
        {"name": "unique(id)", "ok": True, "value": 0, "limit": 0, "detail": ""},
        {"name": "no_negative_ids", "ok": True, "value": None, "limit": None, "detail": ""},
    )
    assert verdict.manifest == written_run(ROWS).manifest.digest


def test_a_check_that_could_not_use_the_ledger_gives_no_verdict() -> None:
    def compare(_raw: Raw) -> bool:
        raise LookupError("no figures") from LedgerUnavailable("away")

    with pytest.raises(LookupError):
        run_validator(row_count(min=1), compare)


@pytest.mark.req("P-13")
def test_a_rejection_has_the_measured_values() -> None:
    verdict = run_validator(row_count(min=5), unique("id"), not_null("name"))
    assert (verdict.decision, verdict.reason, verdict.final) == ("rejected", "row_count", False)
    assert (
        verdict.message == "row_count: 2 rows; at least 5 wanted; not_null(name): name is missing in 2 of 2 rows, first in row 1"
    )
    assert [(one["name"], one["ok"]) for one in verdict.checks] == [
        ("row_count", False),
        ("unique(id)", True),
        ("not_null(name)", False),
    ]


def test_data_that_does_not_fit_is_final() -> None:
    verdict = run_validator(row_count(min=5), schema({"id": str}))
    assert (verdict.reason, verdict.final) == ("schema", True)


def test_no_checks_accept() -> None:
    assert run_validator().decision == "accepted"


def test_a_check_that_raises_rejects_with_its_error() -> None:
    def broken(raw: Raw) -> bool:
        return next(raw.rows())["placed_on"] <= "2026"  # type: ignore[no-any-return]

    verdict = run_validator(broken, row_count(min=1))
    assert (verdict.decision, verdict.reason, verdict.final) == ("rejected", "broken", False)
    assert verdict.message == "broken: the check raised KeyError: 'placed_on'"
    assert verdict.checks[1]["ok"], "the others were asked all the same"


def test_a_check_that_raises_stop_is_final() -> None:
    def closed(raw: Raw) -> bool:
        raise Stop("the customer has left")

    assert run_validator(closed).message == "closed: the customer has left"
    assert run_validator(closed).final


@pytest.mark.parametrize("answer", [None, 1, "yes", [True]])
def test_a_check_without_a_result_rejects(answer: Any) -> None:
    verdict = run_validator(lambda raw: answer)
    assert verdict.message is not None
    assert f"it returned {type(answer).__name__}, and a check returns True, False or a Finding" in verdict.message


def test_measured_values_are_stored_as_short_json() -> None:
    verdict = run_validator(lambda raw: Finding(False, value=object, limit=list(range(1000)), detail="x" * 5000))
    (row,) = verdict.checks
    assert row["value"] == "<class 'object'>"
    assert len(row["limit"]) == len(row["detail"]) == 1000


def test_secrets_are_redacted() -> None:
    assert "hunter2" not in str(run_validator(lambda raw: Finding(False, detail="password=hunter2")))


def damaged_store() -> tuple[Store, Raw]:
    store = Store(Memory("m"))
    run = RunWriter(store, KEY, "r-1")
    run.sink.rows(ROWS)
    run.finish(NOW)
    return store, load_raw(store, KEY, "r-1")


@pytest.mark.parametrize("check", [unique("id"), no_negative_ids], ids=["rows", "own"])
def test_damaged_data_is_rejected(check: Check) -> None:
    store, found = damaged_store()
    store.write(f"{run_folder(KEY, 'r-1')}/rows.jsonl", b'{"id":1}\n{"id":3}\n')
    verdict = Validator("v", "1", [check]).validate(found)
    assert (verdict.decision, verdict.reason) == ("rejected", "damaged")
    assert verdict.message is not None
    assert "its bytes were changed" in verdict.message


@pytest.mark.parametrize("check", [unique("id"), no_negative_ids], ids=["rows", "own"])
def test_an_unavailable_store_is_not_a_verdict(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: File) -> Iterator[dict[str, Any]]:
        raise Unavailable("the lake is away", path="x", backend="m")
        yield {}

    monkeypatch.setattr(File, "read", away)
    with pytest.raises(Unavailable):
        run_validator(check)


def test_rows_that_cannot_be_read_are_rejected() -> None:
    store = Store(Memory("m"))
    run = RunWriter(store, KEY, "r-1")
    with run.sink.open("a.csv", rows=1) as file:
        file.write(b"a\n")
    run.finish(NOW)
    verdict = Validator("v", "1", [unique("id")]).validate(load_raw(store, KEY, "r-1"))
    assert verdict.message is not None
    assert "rows() reads JSON Lines and Parquet; 'a.csv' is neither" in verdict.message


def test_rows_are_read_once_for_all_checks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    before = File.open
    monkeypatch.setattr(File, "open", lambda self: opened.append(self.name) or before(self))  # type: ignore[func-returns-value]
    assert run_validator(unique("id"), not_null("id"), schema({"id": int})).decision == "accepted"
    assert opened == ["rows.jsonl"]


async def later(raw: Raw) -> bool:
    return True


@pytest.mark.parametrize(
    ("check", "says"),
    [
        ("row_count", "a check is a function of what a run wrote"),
        (row_count, r"row_count makes a check, and is none itself: row_count\(...\)"),
        (later, "the check later is async"),
    ],
)
def test_invalid_checks_are_rejected(check: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Validator("crm/orders", "1", [check])
