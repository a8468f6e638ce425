"""Outages: rejections of a whole pass for a transient reason do not count as attempts."""

from __future__ import annotations

import logging
import subprocess
import sys
import zlib
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from redrive import RetryPolicy
from redrive.batch import ItemStatus, Report, Settings, retrying
from redrive.batch.decision import fault_of
from redrive.journal import Ring
from redrive.testing import FakeClock, instant
from tests.unit.batch.world import SYNC_AND_ASYNC, AsyncSender, PlainStore, Script, Sender, Store, partial, send


@pytest.mark.req("B-15")
@SYNC_AND_ASYNC
def test_a_single_poison_item_is_given_up(kind: type, redrive_clock: FakeClock) -> None:
    store = Store()
    first, _ = send(kind, store, ["bad"], lambda *_: "checksum")
    assert (first.outcome, store.counts, store.gone) == ("failure", {"bad": 4}, {})
    assert first.next_retry_at is not None
    second, inner = send(kind, store, ["bad"], lambda *_: "checksum")
    assert (second.outcome, second.next_retry_at, set(store.gone)) == ("failure", None, {"bad"})
    assert len(inner.sent) == 1


@pytest.mark.req("B-15")
@SYNC_AND_ASYNC
@pytest.mark.parametrize("some_pass", [False, True], ids=["full outage", "brown-out"])
def test_an_outage_gives_up_only_poison_items(
    kind: type, some_pass: bool, redrive_clock: FakeClock, redrive_journal: Ring
) -> None:
    """Only poison items give up: alone, in a partial outage, and in a full outage."""
    store, call = Store(), 0
    ids = ["poison", *(f"t{n:03}" for n in range(200))]

    def answer(item: str, turn: int) -> str:
        if item == "poison":
            return "checksum mismatch"
        lucky = some_pass and zlib.crc32(f"{item} {call} {turn}".encode()) % 40 == 0
        return "" if lucky else "503 service unavailable"

    while (call := call + 1) <= 8:
        report, _ = send(kind, store, ids, answer)
        known = report.count("acknowledged") + report.count("giveup") + report.count("pending")
        assert known == len(report.items)
    assert set(store.gone) == {"poison"}
    assert set(store.increments) == {"poison"}
    told = [record for record in redrive_journal.records if record.kind == "batch_outage"]
    assert told
    assert told[0].fields["reason"] == "503 service unavailable"
    # The outage ends, and every other item is acknowledged.
    send(kind, store, ids, lambda *_: "")
    assert store.done == set(ids) - {"poison"}


@pytest.mark.req("B-15")
@pytest.mark.parametrize(
    ("many", "refused", "charged"),
    [
        (9, 9, True),
        (10, 10, False),
        (10, 9, True),
        (11, 10, False),
        (12, 10, True),
        (100, 89, True),
        (100, 90, False),
        (200, 13, True),
    ],
)
def test_number_and_share_of_rejections_that_show_an_outage(many: int, refused: int, charged: bool) -> None:
    store = Store()
    ids = [f"t{n:03}" for n in range(many)]
    with instant():
        send(Sender, store, ids, lambda item, _: "503" if item < f"t{refused:03}" else "", retry=RetryPolicy.disabled())
    assert bool(store.increments) is charged


@pytest.mark.req("B-15")
def test_different_reasons_do_not_show_an_outage() -> None:
    store = Store()
    with instant():
        send(Sender, store, [f"t{n}" for n in range(20)], lambda item, _: f"bad checksum of {item}", retry=RetryPolicy.disabled())
    assert len(store.increments) == 20


@pytest.mark.req("B-15")
def test_an_outage_lasts_until_an_item_is_acknowledged() -> None:
    store = Store()
    ids = [f"t{n:02}" for n in range(12)]
    with instant():  # from pass 2 on, ten items have their own fault and are given up
        send(Sender, store, ids, lambda item, turn: "422" if turn > 1 and item > "t01" else "503", item_attempts=1)
    assert store.spared == {item: 1 if item > "t01" else 4 for item in ids}
    assert set(store.increments) == set(ids[2:])
    with instant():  # a new call of two items: too few for an outage
        send(Sender, store, ["t00", "t01"], lambda *_: "503", retry=RetryPolicy.disabled(), item_attempts=9)
    assert store.increments[-2:] == ["t00", "t01"]


@pytest.mark.req("B-15")
def test_a_success_ends_the_outage_of_a_call() -> None:
    store = Store()
    with instant():
        send(Sender, store, [f"t{n:02}" for n in range(12)], lambda item, turn: "" if turn > 1 and item > "t01" else "503")
    assert sorted(store.increments) == ["t00", "t00", "t00", "t01", "t01", "t01"]  # passes 2 to 4


@pytest.mark.req("B-15")
@pytest.mark.parametrize("some", ["503", "HTTP 503 later", "HTTP/1.1 429 Too Many Requests", "  502: bad gateway", "504"])
def test_a_reason_is_classified_by_the_status_it_begins_with(some: str) -> None:
    store = Store()
    with instant():
        send(Sender, store, [f"t{n:02}" for n in range(20)], lambda *_: some, retry=RetryPolicy.disabled())
    assert (len(store.spared), store.increments) == (20, [])


@pytest.mark.req("B-15")
@pytest.mark.parametrize(
    "some", ["422 checksum mismatch", "404", " ", "busy", "error 503", "5030", "503.7 mm", "checksum", "501", "500,000 rows"]
)
def test_permanent_and_unknown_reasons_are_always_charged(some: str) -> None:
    store = Store()
    with instant():
        send(Sender, store, [f"t{n:02}" for n in range(20)], lambda *_: some, retry=RetryPolicy.disabled())
    assert (store.spared, len(store.increments)) == ({}, 20)


def declaring_sender(reason: str, **said: bool) -> Script:
    return Script(Report("failure", [ItemStatus(f"t{n:02}", "rejected", reason, **said) for n in range(20)]))


@pytest.mark.req("B-15")
def test_a_sender_declares_that_a_rejection_is_transient_or_not() -> None:
    store = Store()
    retrying(declaring_sender("no route", transient=True), items=store, retry=RetryPolicy.disabled()).send_pending()
    assert (len(store.spared), store.increments) == (20, [])
    retrying(declaring_sender("503", transient=False), items=store, retry=RetryPolicy.disabled()).send_pending()
    assert len(store.increments) == 20


@pytest.mark.req("B-15")
def test_several_messages_show_one_outage_if_no_item_succeeds() -> None:
    store = Store()
    with instant():
        send(Sender, store, [f"t{n:02}" for n in range(20)], lambda item, _: "503" if item < "t10" else "504 late")
    assert (set(store.spared.values()), store.increments) == ({4}, [])


@pytest.mark.req("B-15")
def test_a_permanently_rejected_item_is_given_up_immediately(
    redrive_clock: FakeClock, redrive_journal: Ring, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    report = Report("partial", [ItemStatus("ok", "acknowledged"), ItemStatus("bad", "rejected", "410 gone", permanent=True)])
    with caplog.at_level(logging.ERROR, "redrive"):
        result = retrying(Script(report), items=store).send_pending()
    assert (store.gone, store.counts, redrive_clock.slept) == ({"bad": "410 gone"}, {"bad": 1}, [])
    assert (result.count("giveup"), result.next_retry_at, result.outcome) == (1, None, "partial")
    (record,) = [record for record in redrive_journal.records if record.kind == "giveup"]
    assert record.fields.items() >= {"item": "bad", "attempts": 1, "reason": "410 gone", "permanent": True}.items()
    assert caplog.messages == ["Script.send_pending: item bad given up (permanent): 410 gone"]


@pytest.mark.req("B-15")
def test_an_outage_is_printed_once_for_a_call_if_logging_is_not_set_up() -> None:
    program = """
from redrive.batch import ItemStatus, Report, retrying
from redrive.testing import instant
from tests.unit.batch.world import Sender, Store

store = Store()
with instant():
    retrying(Sender(store, [f"t{n}" for n in range(12)], lambda *_: "503 busy"), items=store).send_pending()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr.splitlines() == ["Sender.send_pending: outage: 503 busy (items rejected: 12, counted as attempts: none)"]


@pytest.mark.req("B-15")
@pytest.mark.parametrize("outcome", ["partial", "failure"])
def test_a_give_up_by_the_sender_is_stored(outcome: Any, redrive_clock: FakeClock, redrive_journal: Ring) -> None:
    """A sender that gives up an item in each call would otherwise send it repeatedly without a limit."""
    store = Store()
    report = Report(outcome, [ItemStatus("bad", "giveup", "410 gone"), ItemStatus("old", "giveup", "404")])
    store.gone["old"] = "before"
    result = retrying(Script(report), items=store).send_pending()
    assert (store.gone, store.counts) == ({"bad": "410 gone", "old": "before"}, {"bad": 1})
    assert (result.count("giveup"), result.next_retry_at, redrive_clock.slept) == (2, None, [])
    assert [record.fields["item"] for record in redrive_journal.records if record.kind == "giveup"] == ["bad"]


@pytest.mark.req("B-15")
@pytest.mark.parametrize("runs", ["one process", "a process for each run"])
def test_damaged_items_are_sent_once_for_each_attempt(runs: str, redrive_clock: FakeClock) -> None:
    """20 of 50 items are damaged; the operator's command runs 60 times."""
    store = Store()
    ids = [f"t{n:02}" for n in range(50)]
    sender = Sender(store, ids, lambda item, _: "422 checksum mismatch" if item < "t20" else "")
    same = retrying(sender, items=store)
    for _ in range(60):
        (same if runs == "one process" else retrying(sender, items=store)).send_pending()
    sends = Counter(item for sent in sender.sent for item in sent)
    assert sends == {item: 5 if item < "t20" else 1 for item in ids}
    assert set(store.gone) == set(ids[:20])


@pytest.mark.req("B-15")
def test_a_few_rejections_among_many_successes_are_charged() -> None:
    store = Store()
    ids = [f"t{n:03}" for n in range(200)]
    with instant():  # the rejected ones come last, where they could look like a run of failures
        send(Sender, store, ids, lambda item, _: "503 busy" if item >= "t187" else "", retry=RetryPolicy.disabled())
    assert sorted(store.increments) == ids[187:]
    with instant():
        send(Sender, Store(), ids, lambda item, _: "503 busy" if item >= "t150" else "", retry=RetryPolicy.disabled())
    assert store.spared == {}


@pytest.mark.req("B-15")
def test_uncharged_passes_have_a_limit_in_the_store() -> None:
    store = Store()
    ids = [f"t{n}" for n in range(10)]
    inner = Sender(store, ids, lambda *_: "503")
    calls = 0
    with instant():
        while len(store.gone) < 10:  # a process for each call
            retrying(inner, items=store, settings=Settings(max_uncharged_passes=6)).send_pending()
            calls += 1
            assert calls < 10
    assert len(inner.sent) == 6 + 5  # not charged six times, then charged five times


@pytest.mark.req("B-15")
@pytest.mark.parametrize("kind", [Sender, AsyncSender], ids=["sync", "async"])
def test_without_spare_many_every_rejection_is_charged(kind: type, redrive_clock: FakeClock, redrive_journal: Ring) -> None:
    store = PlainStore()
    ids = [f"t{n}" for n in range(10)]
    send(kind, store, ids, lambda *_: "503")
    assert store.counts == dict.fromkeys(ids, 4)
    told = next(record for record in redrive_journal.records if record.kind == "batch_outage")
    assert (told.fields["items"], told.fields["charged"]) == (10, 10)


@pytest.mark.req("B-15")
def test_max_uncharged_passes_zero_charges_every_rejection() -> None:
    store = Store()
    with instant():
        told = Settings(0, 5, max_uncharged_passes=0)
        send(Sender, store, [f"t{n}" for n in range(10)], lambda *_: "503", settings=told)
    assert (store.spared, len(store.increments)) == ({}, 10)


@pytest.mark.req("B-15")
def test_an_outage_of_an_hour_costs_no_attempt(redrive_clock: FakeClock) -> None:
    store = Store()
    ids = [f"t{n}" for n in range(10)]
    sender = retrying(Sender(store, ids, lambda *_: "503"), items=store)
    end = redrive_clock.now() + timedelta(hours=1)
    while redrive_clock.now() < end:
        report = sender.send_pending()
        assert report.next_retry_at is not None
        redrive_clock.advance(report.next_retry_at - redrive_clock.now())
    assert store.increments == []


@pytest.mark.req("B-9")
def test_disabled_retrying_returns_the_sender(caplog: pytest.LogCaptureFixture) -> None:
    inner, store = Script(partial(a="", b="no")), Store()
    with caplog.at_level(logging.INFO, "redrive"):
        assert retrying(inner, items=store, enabled=False) is inner
        assert retrying(inner, items=store, settings=Settings(enabled=False)) is inner
    assert [record.getMessage() for record in caplog.records] == ["batch disabled operation=Script.send_pending"] * 2


@pytest.mark.req("B-15")
@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("UNAVAILABLE", "transient"),
        ("StatusCode.UNAVAILABLE", "transient"),
        ("UNAVAILABLE: no route to host", "transient"),
        ("RESOURCE_EXHAUSTED (quota)", "throttled"),
        ("DEADLINE_EXCEEDED", "timeout"),
        ("INTERNAL", "transient"),
        ("INVALID_ARGUMENT", "permanent"),
        ("NOT_FOUND: no such tile", "permanent"),
        ("UNKNOWN", "unknown"),
        ("OK", "unknown"),
        ("Unavailable", "unknown"),
        ("UNAVAILABLE_IN_YOUR_PLAN", "unknown"),
        ("INTERNAL CHECKSUM MISMATCH", "unknown"),
        ("tile is UNAVAILABLE", "unknown"),
    ],
)
def test_a_grpc_status_at_the_start_of_a_reason_classifies_it(reason: str, meaning: str) -> None:
    assert fault_of(ItemStatus("a", "rejected", reason)).kind == meaning


@pytest.mark.req("B-15")
def test_an_outage_of_a_grpc_receiver_charges_no_item_and_bad_arguments_do(redrive_clock: FakeClock) -> None:
    store = Store()
    ids = ["bad", *(f"t{n:03}" for n in range(20))]

    def answer(item: str, _turn: int) -> str:
        return "INVALID_ARGUMENT: checksum" if item == "bad" else f"UNAVAILABLE: upstream {item} is away"

    send(Sender, store, ids, answer)
    assert set(store.increments) == {"bad"}
