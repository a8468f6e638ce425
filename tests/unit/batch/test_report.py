"""Validation of reports."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from redrive.batch import ItemStatus, Report, retrying
from redrive.batch.report import check_report
from redrive.errors import BadReport
from redrive.testing import instant
from tests.unit.batch.world import Script, Store, partial, success

YES, NO = ItemStatus("a", "acknowledged"), ItemStatus("b", "rejected", "checksum")
NONSENSE: list[tuple[Any, str]] = [
    (None, "must return a redrive.batch.Report, not NoneType: None"),
    ("partial", "not str: 'partial'"),
    ({"outcome": "partial"}, "not dict"),
    (True, "not bool"),
    (Report("parital", [YES]), "the outcome is 'parital', not one of success, partial, failure"),  # type: ignore[arg-type]
    (Report("partial", None), "items is a list of ItemStatus, not NoneType"),  # type: ignore[arg-type]
    (Report("partial", "ab"), "items is a list of ItemStatus, not str"),  # type: ignore[arg-type]
    (Report("partial", 7), "items is a list of ItemStatus, not int"),  # type: ignore[arg-type]
    (Report("partial", [YES, "b"]), "each item is an ItemStatus, not str: 'b'"),  # type: ignore[list-item]
    (Report("partial", [YES, ItemStatus(7, "rejected")]), "an item's id is text, not 7"),  # type: ignore[arg-type]
    (Report("partial", [YES, ItemStatus("", "rejected")]), "an item's id is text, not ''"),
    (Report("partial", [ItemStatus("b", "refused")]), "item 'b' is 'refused', not one of"),  # type: ignore[arg-type]
    (Report("partial", [ItemStatus("b", "rejected", None)]), "the reason of item 'b' is text, not NoneType"),  # type: ignore[arg-type]
    (Report("partial", [ItemStatus("b", "rejected", "x", 1)]), "permanent= and transient= of item 'b' are True or False"),  # type: ignore[arg-type]
    (Report("partial", [ItemStatus("b", "rejected", "x", True, True)]), "item 'b' is permanent=True: only a rejected item can"),
    (Report("success", [ItemStatus("b", "acknowledged", "", True)]), "item 'b' is permanent=True: only a rejected item can"),
    (Report("partial", [YES, NO, YES]), "item 'a' reported twice"),
    (Report("success", [YES, NO]), "the outcome is success, and not all items are acknowledged"),
    (Report("failure", [YES, NO]), "the outcome is failure, and some items are acknowledged"),
    (Report("partial", [YES]), "the outcome is partial, and no item is rejected, pending or given up"),
]


@pytest.mark.req("B-1")
@pytest.mark.parametrize(("report", "message"), NONSENSE, ids=[said for _, said in NONSENSE])
def test_an_invalid_report_is_rejected_and_not_counted(report: Any, message: str) -> None:
    store = Store()
    with instant() as clock, pytest.raises(BadReport) as refused:
        retrying(Script(report), items=store).send_pending()
    assert message in str(refused.value)
    assert refused.value.report is report
    assert "Script.send_pending" in str(refused.value)
    assert (store.increments, store.gone, clock.slept) == ([], {}, [])


class Unreadable:
    def __repr__(self) -> str:
        raise RuntimeError


def test_a_result_without_repr_is_rejected() -> None:
    with pytest.raises(BadReport, match="not Unreadable: …"):
        check_report(Unreadable(), operation="x")


@pytest.mark.parametrize(
    ("report", "expected", "only", "message"),
    [
        (partial(a="", b="no"), ["a", "b", "c"], False, "pass 1, this pass was not counted: missing item 'c'"),
        (partial(a="", b="no", c="no"), ["a", "b"], True, "unexpected item 'c'"),
        (partial(a="", b="no"), [*"abcdefghij"], False, "missing items 'c', 'd', 'e', 'f', 'g' and 3 more"),
    ],
)
def test_missing_and_unexpected_ids_are_rejected(report: Report, expected: list[str], only: bool, message: str) -> None:
    with pytest.raises(BadReport) as refused:
        check_report(report, operation="x", expected=expected, only=only)
    assert message in str(refused.value)


def test_a_valid_report_is_returned() -> None:
    for report in (success(), success("a"), partial(a="", b="no"), Report("failure", [])):
        assert check_report(report, operation="x") is report
    nothing_said = Report("failure", ())
    assert check_report(nothing_said, operation="x", expected=["a"]) is nothing_said
    assert check_report(partial(a="", b="no"), operation="x", expected=["b"]).count("rejected") == 1


def test_expected_ids_are_checked_in_the_first_pass() -> None:
    store = Store()
    sender = retrying(Script(partial(a="", b="no")), items=store, ids=lambda ids: ids)
    with pytest.raises(BadReport, match="missing item 'c'"):
        sender.send_pending(["a", "b", "c"])
    with pytest.raises(BadReport, match="unexpected item 'b'"):
        sender.send_pending(["a"])
    assert store.increments == []


def test_a_later_pass_must_report_on_pending_items() -> None:
    store = Store()
    with instant(), pytest.raises(BadReport, match="invalid report in pass 2, this pass was not counted: missing item 'b'"):
        retrying(Script(partial(a="", b="no"), success("c")), items=store).send_pending()
    assert store.increments == ["b"]
    with instant(), pytest.raises(BadReport, match="'a' was acknowledged in an earlier pass, and is rejected now"):
        retrying(Script(partial(a="", b="no"), partial(a="no", b="")), items=store).send_pending()


def test_a_later_pass_may_not_report_unexpected_ids() -> None:
    store = Store()
    sender = retrying(Script(partial(a="", b="no"), success("b", "new")), items=store, ids=lambda: ["a", "b"])
    with instant(), pytest.raises(BadReport, match="unexpected item 'new'"):
        sender.send_pending()


def test_an_item_unknown_to_the_store_is_a_bad_report() -> None:
    with instant(), pytest.raises(BadReport, match="names items that its store does not know: 'b'"):
        retrying(Script(partial(a="", b="no")), items=Store("a")).send_pending()


@dataclass(frozen=True)
class UploadBatchReport:
    """A custom report class that is not a subclass of `Report`."""

    outcome: str
    per_tile_status: tuple[tuple[str, str], ...]
    retry_count: int = 0
    next_retry_at_s: float | None = None


def to_report(own: UploadBatchReport) -> Report:
    items = [ItemStatus(tile, "rejected" if why else "acknowledged", why) for tile, why in own.per_tile_status]
    return Report("failure" if own.outcome == "failure" else "partial" if own.outcome == "partial" else "success", items)


def from_report(report: Report, last: UploadBatchReport) -> UploadBatchReport:
    at = report.next_retry_at
    tiles = tuple((item.id, item.status) for item in report.items)
    return replace(
        last,
        outcome=report.outcome,
        per_tile_status=tiles,
        retry_count=report.retry_count,
        next_retry_at_s=None if at is None else at.timestamp(),
    )


FIRST = UploadBatchReport("partial", (("a", ""), ("b", "422 checksum")))
LATER = UploadBatchReport("failure", (("b", "422 checksum"),))


@pytest.mark.req("B-1")
def test_to_report_maps_a_custom_report_class() -> None:
    store = Store()
    with instant():
        report: Any = retrying(Script(FIRST, LATER), items=store, to_report=to_report).send_pending()
    assert isinstance(report, Report)
    assert (report.outcome, report.retry_count, store.counts) == ("partial", 3, {"b": 4})


@pytest.mark.req("B-1")
def test_from_report_maps_back_to_a_custom_report_class() -> None:
    sender = retrying(Script(FIRST, LATER), items=Store(), to_report=to_report, from_report=from_report)
    with instant() as clock:
        found = sender.send_pending()
        assert found.next_retry_at_s == (clock.now() + timedelta(seconds=60)).timestamp()
    assert isinstance(found, UploadBatchReport)
    assert (found.outcome, found.retry_count) == ("partial", 3)
    assert found.per_tile_status == (("a", "acknowledged"), ("b", "pending"))
    fine = UploadBatchReport("success", (("a", ""),))
    passed = retrying(Script(fine), items=Store(), to_report=to_report, from_report=from_report)
    assert passed.send_pending() is fine  # B-2: passed on as it is


@pytest.mark.req("B-1", "B-6")
def test_the_time_to_send_unsent_items_again_is_mapped_back() -> None:
    def as_pending(own: UploadBatchReport) -> Report:
        return Report("failure", [ItemStatus(tile, "pending", why) for tile, why in own.per_tile_status])

    unsent = Script(UploadBatchReport("failure", (("a", "no route"),)))
    sender = retrying(unsent, items=Store(), to_report=as_pending, from_report=from_report)
    with instant() as clock:
        found = sender.send_pending()
        assert found.next_retry_at_s == (clock.now() + timedelta(seconds=60)).timestamp()
    assert (found.outcome, found.retry_count) == ("failure", 0)


@pytest.mark.req("B-1")
def test_reports_of_an_async_sender_are_mapped() -> None:
    class Uploader:
        async def send_pending(self) -> UploadBatchReport:
            return FIRST

    sender = retrying(Uploader(), items=Store(), to_report=to_report, from_report=from_report)
    with instant():
        found = asyncio.run(sender.send_pending())
    assert (found.outcome, found.retry_count) == ("partial", 3)


def test_a_custom_report_class_without_to_report_is_rejected() -> None:
    with pytest.raises(BadReport, match=r"a redrive.batch.Report, not UploadBatchReport: .*; pass to_report= to map it"):
        retrying(Script(FIRST), items=Store()).send_pending()
    with pytest.raises(BadReport, match="must return a redrive.batch.Report, not UploadBatchReport"):
        retrying(Script(FIRST), items=Store(), to_report=lambda own: own).send_pending()
    with pytest.raises(TypeError, match="to_report= is a function"):
        retrying(Script(FIRST), items=Store(), to_report=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs to_report="):
        retrying(Script(FIRST), items=Store(), from_report=from_report)


@pytest.mark.parametrize(
    ("to", "back", "message"),
    [
        (to_report, lambda report: report, r"from_report= must take 2 arguments \(the Report, the sender's last result\)"),
        (to_report, lambda report, last, more: report, r"from_report= must take 2 arguments .*\(report, last, more\)"),
        (lambda: None, from_report, r"to_report= must take 1 argument \(the sender's result\)"),
    ],
)
def test_a_mapping_with_wrong_arguments_is_rejected_before_sending(to: Any, back: Any, message: str) -> None:
    sender = Script(FIRST)
    with pytest.raises(TypeError, match=message):
        retrying(sender, items=Store(), to_report=to, from_report=back)
    assert retrying(sender, items=Store(), to_report=to_report, from_report=lambda *both: both[1]) is not None


def test_a_function_can_be_a_sender() -> None:
    def upload(flight: str) -> Report:
        return success(flight)

    with pytest.raises(TypeError, match=r'function has no method .send_pending.; pass method="__call__" for a function'):
        retrying(upload, items=Store())
    assert retrying(upload, items=Store(), method="__call__")("f7").count("acknowledged") == 1
