"""Passes, waits, charges and the final report of a call, sync and async."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from redrive import RetryPolicy, deadline, retry
from redrive.batch import ItemStatus, Report, Settings, retrying
from redrive.journal import Ring
from redrive.testing import FakeClock, instant
from tests.unit.batch.world import SYNC_AND_ASYNC, AsyncSender, Script, Sender, Store, partial, send, success


@pytest.mark.req("B-2")
@SYNC_AND_ASYNC
def test_a_success_is_returned_unchanged(kind: type, redrive_clock: FakeClock) -> None:
    store = Store()
    report, inner = send(kind, store, ["a", "b"], lambda *_: "")
    assert report == success("a", "b")
    assert (inner.sent, store.increments, redrive_clock.slept) == ([["a", "b"]], [], [])
    same = success("a")
    assert retrying(Script(same), items=store).send_pending() is same


@pytest.mark.req("B-2")
def test_a_failure_without_items_is_returned_unchanged(redrive_clock: FakeClock) -> None:
    failure, store = Report("failure", []), Store()
    sender = Script(failure)
    assert retrying(sender, items=store).send_pending() is failure
    gone = Report("failure", [ItemStatus("a", "giveup", "given up before")])
    store.gone["a"] = "given up before"
    assert retrying(Script(gone), items=store).send_pending() is gone
    assert (sender.calls, store.increments, redrive_clock.slept) == (1, [], [])


@pytest.mark.req("B-2", "B-6")
@SYNC_AND_ASYNC
def test_a_failure_with_pending_items_is_returned_with_a_time_to_send_again(kind: type, redrive_clock: FakeClock) -> None:
    unsent = Report("failure", [ItemStatus("a", "pending", "no route"), ItemStatus("b", "pending", "no route")])
    store = Store()

    class Unsent(kind):  # type: ignore[misc]
        def pass_(self) -> Report:
            self.sent.append([])
            return unsent

    inner = Unsent(store, ["a", "b"], lambda *_: "")
    result = retrying(inner, items=store).send_pending()
    report = asyncio.run(result) if asyncio.iscoroutine(result) else result
    assert report == replace(unsent, next_retry_at=redrive_clock.now() + timedelta(seconds=60))
    assert (len(inner.sent), store.increments, store.spared, redrive_clock.slept) == (1, [], {}, [])


@pytest.mark.req("B-6")
def test_an_unsent_item_that_the_store_gave_up_needs_no_time(redrive_clock: FakeClock) -> None:
    store = Store()
    store.give_up("a", "422 checksum mismatch")
    unsent = Script(Report("failure", [ItemStatus("a", "pending", "no route")]))
    report = retrying(unsent, items=store).send_pending()
    assert (report.outcome, report.count("giveup"), report.next_retry_at) == ("failure", 1, None)


@pytest.mark.req("B-3", "B-5", "B-6")
@SYNC_AND_ASYNC
def test_rejected_items_are_counted_and_sent_again(kind: type, redrive_clock: FakeClock) -> None:
    store = Store()
    ids = [f"t{n}" for n in range(10)]
    report, inner = send(kind, store, ids, lambda item, turn: "busy" if item < "t3" and turn == 1 else "")
    assert store.increments == ["t0", "t1", "t2"]
    assert redrive_clock.slept == [2.0]
    assert [len(sent) for sent in inner.sent] == [10, 3]
    assert (report.outcome, report.retry_count, report.next_retry_at) == ("success", 1, None)
    assert [item.id for item in report.items] == ids
    assert report.count("acknowledged") == 10


@pytest.mark.req("B-5", "B-6")
@SYNC_AND_ASYNC
def test_pending_items_remain_after_the_last_retry(kind: type, redrive_clock: FakeClock) -> None:
    report, inner = send(kind, Store(), ["a", "b"], lambda item, _: "no" if item == "b" else "")
    assert redrive_clock.slept == [2.0, 4.0, 8.0]
    assert inner.sent == [["a", "b"], ["b"], ["b"], ["b"]]
    assert (report.outcome, report.retry_count) == ("partial", 3)
    assert report.next_retry_at == redrive_clock.now() + timedelta(seconds=60)
    assert report.items == [ItemStatus("a", "acknowledged"), ItemStatus("b", "pending", "no")]


@pytest.mark.req("B-5")
def test_waits_of_settings_and_policies(redrive_clock: FakeClock) -> None:
    never = Script(partial(a="", b="no"), Report("failure", [ItemStatus("b", "rejected", "no")]))
    retrying(never, items=Store(), settings=Settings(10, 100, 2.0, 10.0)).send_pending()
    assert redrive_clock.slept == [2, 4, 8, 10, 10, 10, 10, 10, 10, 10]
    redrive_clock.slept.clear()
    policy = RetryPolicy(max_attempts=3, backoff_base=1, backoff_max=5, jitter=0)
    report = retrying(Script(partial(b="no")), items=Store(), retry=policy).send_pending()
    assert redrive_clock.slept == [1, 2]
    assert report.next_retry_at == redrive_clock.now() + timedelta(seconds=5)
    redrive_clock.slept.clear()
    assert retrying(Script(partial(b="no")), items=Store(), retry=RetryPolicy.disabled()).send_pending().retry_count == 0
    assert redrive_clock.slept == []


@pytest.mark.req("C-8")
def test_no_retry_if_the_wait_exceeds_the_timeout(redrive_clock: FakeClock) -> None:
    with deadline(5):
        report = retrying(Script(partial(a="", b="no")), items=Store()).send_pending()
    assert (redrive_clock.slept, report.retry_count, report.outcome) == ([2.0], 1, "partial")
    redrive_clock.slept.clear()
    policy = RetryPolicy(max_attempts=9, backoff_base=2, jitter=0, timeout=7)
    retrying(Script(partial(a="", b="no")), items=Store(), retry=policy).send_pending()
    assert redrive_clock.slept == [2, 4]


@pytest.mark.req("B-4", "J-1")
@SYNC_AND_ASYNC
def test_a_given_up_item_is_not_sent_again(
    kind: type, redrive_clock: FakeClock, redrive_journal: Ring, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(counts={"bad": 3})
    with caplog.at_level(logging.INFO, "redrive"):
        report, inner = send(kind, store, ["bad", "ok"], lambda item, _: "checksum, token=s3cret" if item == "bad" else "")
    assert inner.sent == [["bad", "ok"], ["bad"]]
    assert store.counts == {"bad": 5}
    assert (report.outcome, report.retry_count, report.next_retry_at) == ("partial", 1, None)
    assert report.items == [ItemStatus("bad", "giveup", "checksum, token=s3cret"), ItemStatus("ok", "acknowledged")]
    (record,) = [record for record in redrive_journal.records if record.kind == "giveup"]
    assert (record.fields["item"], record.fields["attempts"]) == ("bad", 5)
    assert record.fields["reason"] == "checksum, token=[redacted]" == store.gone["bad"]
    (line,) = [line for line in caplog.records if line.levelno == logging.ERROR]
    assert line.getMessage().endswith("item bad given up after 5 rejections: checksum, token=[redacted]")
    assert "s3cret" not in caplog.text


@pytest.mark.req("B-4")
def test_a_give_up_is_logged_once(redrive_clock: FakeClock, redrive_journal: Ring) -> None:
    store = Store(counts={"bad": 9})
    store.gone["bad"] = "before"  # and the sender still sends it
    report = retrying(Script(partial(bad="no", ok="")), items=store).send_pending()
    assert report.count("giveup") == 1
    assert report.retry_count == 0
    assert not [record for record in redrive_journal.records if record.kind == "giveup"]


def test_resending_given_up_items_is_not_counted(redrive_clock: FakeClock) -> None:
    store = Store(counts={"bad": 4})
    report = retrying(Script(partial(bad="no", ok="", slow="busy")), items=store).send_pending()
    assert store.increments.count("bad") == 1
    assert store.increments.count("slow") == 4
    assert [item.status for item in report.items] == ["giveup", "acknowledged", "pending"]


@pytest.mark.req("B-7")
@pytest.mark.parametrize("error", [RuntimeError("not on ground"), KeyboardInterrupt(), ConnectionError("503")], ids=repr)
def test_errors_of_the_sender_are_raised(error: BaseException, redrive_clock: FakeClock) -> None:
    store = Store()
    with pytest.raises(type(error)) as raised:
        retrying(Script(error), items=store).send_pending()
    assert raised.value is error
    assert (store.increments, redrive_clock.slept) == ([], [])


@pytest.mark.req("B-7")
def test_errors_of_a_later_pass_are_raised(redrive_clock: FakeClock) -> None:
    store = Store()
    sender = Script(partial(a="", b="no"), ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        retrying(sender, items=store).send_pending()
    assert (sender.calls, store.increments, redrive_clock.slept) == (2, ["b"], [2.0])


@pytest.mark.req("B-8")
def test_a_second_call_sends_the_pending_items(redrive_clock: FakeClock) -> None:
    store = Store()
    ids = [f"t{n:02}" for n in range(50)]
    inner = Sender(store, ids, lambda item, turn: "busy" if item >= "t30" and turn == 1 else "")
    sender = retrying(inner, items=store, retry=RetryPolicy.disabled())
    first = sender.send_pending()
    assert (first.count("acknowledged"), first.count("pending")) == (30, 20)
    redrive_clock.advance(300)
    assert sender.send_pending().outcome == "success"
    assert inner.sent[1] == ids[30:]


@pytest.mark.req("B-14")
def test_log_records_of_a_call(redrive_clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "redrive"):
        retrying(Script(partial(a="", b="no"), success("b")), items=Store()).send_pending()
    lines = [record.getMessage() for record in caplog.records]
    settings = "max_retries=3 item_attempts=5 backoff_base=2.0 cap=60.0 uncharged=200"
    assert lines[0] == f"batch started operation=Script.send_pending {settings}"
    assert "batch retry operation=Script.send_pending retry=1 max_retries=3 wait=2.0 pending=1" in lines
    assert lines[-1].startswith("batch ended operation=Script.send_pending outcome=success passes=2 sent=2 acknowledged=2")
    assert {record.levelno for record in caplog.records} == {logging.INFO}


class Impatient(FakeClock):
    """A clock that raises KeyboardInterrupt during the first wait."""

    def sleep(self, wait: float, /) -> None:
        raise KeyboardInterrupt


@pytest.mark.req("B-14")
def test_rejections_are_counted_if_a_wait_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(counts={"bad": 4})
    inner = Sender(store, ["bad", "slow", "ok"], lambda item, _: "" if item == "ok" else "no")
    with instant() as clock:
        monkeypatch.setattr(clock, "sleep", Impatient().sleep)
        with pytest.raises(KeyboardInterrupt):
            retrying(inner, items=store).send_pending()
    assert (store.counts, set(store.gone), store.done) == ({"bad": 5, "slow": 1}, {"bad"}, {"ok"})
    with instant():
        report = retrying(inner, items=store).send_pending()
    assert inner.sent[1] == ["slow"]
    assert [item.id for item in report.items] == ["slow"]


@dataclass(frozen=True)
class Mine(Report):
    """A subclass of `Report`."""

    flight: str = ""


def test_a_report_subclass_keeps_its_fields(redrive_clock: FakeClock) -> None:
    first = Mine("partial", partial(a="", b="no").items, flight="f-7")
    found = retrying(Script(first, replace(first, outcome="success", items=success("b").items)), items=Store()).send_pending()
    assert isinstance(found, Mine)
    assert (found.flight, found.outcome, found.retry_count, len(found.items)) == ("f-7", "success", 1, 2)


def test_items_that_arrive_between_passes_are_reported(redrive_clock: FakeClock) -> None:
    report = retrying(Script(partial(a="", b="no"), success("b", "new")), items=Store()).send_pending()
    assert [item.id for item in report.items] == ["a", "b", "new"]


def test_a_failure_with_pending_items_in_a_later_pass_ends_the_call(redrive_clock: FakeClock) -> None:
    unsent = Report("failure", [ItemStatus("b", "pending", "no route")])
    report = retrying(Script(partial(a="", b="no"), unsent), items=Store()).send_pending()
    assert (report.outcome, report.retry_count, report.count("pending")) == ("partial", 1, 1)
    assert report.next_retry_at is not None


def test_a_failure_without_items_in_a_later_pass_ends_the_call(redrive_clock: FakeClock) -> None:
    report = retrying(Script(partial(a="", b="no"), Report("failure", [])), items=Store()).send_pending()
    assert (report.outcome, report.retry_count, redrive_clock.slept) == ("partial", 1, [2.0])
    assert report.count("pending") == 1
    assert report.next_retry_at is not None


class Nothing:
    """No store."""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"items": Nothing()}, "it has no increment, give_up, pending"),
        ({"items": Store}, "that is a class"),
        ({"items": Store(), "method": "send_pendin"}, r"Script has no method 'send_pendin' \(it has send_pending\)"),
        ({"items": Store(), "method": "calls"}, "Script has no method 'calls'"),
        ({"items": Store(), "retry": retry(spill=lambda _: None)}, "cannot have spill"),
        ({"items": Store(), "retry": RetryPolicy(), "settings": Settings()}, "not both"),
        ({"items": Store(), "settings": {}}, "settings= is a batch.Settings"),
        ({"items": Store(), "ids": ["a"]}, "ids= is a function"),
        ({"items": Store(), "spill": print}, "spill= is a durable command"),
        ({"items": Store(), "item_attempts": "5"}, "item_attempts must be a whole number"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        retrying(Script(), **options)


def test_a_class_and_an_awaitable_are_rejected() -> None:
    with pytest.raises(TypeError, match="not a class"):
        retrying(Script, items=Store())
    hidden = AsyncSender(Store(), ["a"], lambda *_: "")
    sender = Script()
    sender.send_pending = hidden.send_pending  # type: ignore[method-assign]
    assert asyncio.run(retrying(sender, items=Store()).send_pending()).outcome == "success"
    sender.send_pending = lambda *_: hidden.send_pending()  # type: ignore[method-assign]
    with pytest.raises(TypeError, match="returns an awaitable: declare it `async def`"):
        retrying(sender, items=Store()).send_pending()
