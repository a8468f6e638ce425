"""A batch that is rejected as a whole is split until the bad items are found."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest

from redrive import RetryPolicy, deadline
from redrive.batch import ItemStatus, Report, Settings, TableItems, retrying
from redrive.errors import BadReport
from redrive.journal import Ring
from redrive.testing import FakeClock
from tests.unit.batch.world import PlainStore, Script, Store

IDS = [f"t{n:03}" for n in range(64)]


class Receiver:
    """A receiver that rejects a whole batch for one bad item."""

    def __init__(self, store: Store, bad: Collection[str], ids: list[str] = IDS, reason: str = "400 invalid batch") -> None:
        self.store, self.bad, self.ids, self.reason = store, set(bad), ids, reason
        self.sent: list[list[str]] = []

    def take(self, only: Collection[str] | None = None) -> Report:
        wanted = self.ids if only is None else [item for item in self.ids if item in only]
        now = [item for item in wanted if item in self.store.pending([item])]
        self.sent.append(now)
        if self.bad.intersection(now):
            return Report("failure", [ItemStatus(item, "rejected", self.reason) for item in now])
        self.store.done.update(now)
        return Report("success", [ItemStatus(item, "acknowledged") for item in now])

    @property
    def sends(self) -> Counter[str]:
        return Counter(item for group in self.sent for item in group)


class Sync(Receiver):
    def send_pending(self, flight: str = "f", *, only: Collection[str] | None = None) -> Report:
        return self.take(only)


class Async(Receiver):
    async def send_pending(self, flight: str = "f", *, only: Collection[str] | None = None) -> Report:
        return self.take(only)


SYNC_AND_ASYNC = pytest.mark.parametrize("kind", [Sync, Async], ids=["sync", "async"])


def send(receiver: Any, **options: Any) -> Report:
    sender = retrying(receiver, items=receiver.store, split="only", **options)
    report = sender.send_pending("f")
    return asyncio.run(report) if isinstance(receiver, Async) else report  # type: ignore[no-any-return]


@pytest.mark.req("B-16")
@SYNC_AND_ASYNC
@pytest.mark.parametrize("bad", [["t017"], ["t000", "t063"], ["t001", "t017", "t018", "t040", "t063"]], ids=len)
def test_a_split_finds_the_bad_items_and_sends_the_good_ones(kind: type, bad: list[str], redrive_clock: FakeClock) -> None:
    receiver = kind(Store(), bad)
    report = send(receiver, retry=RetryPolicy.disabled())
    assert receiver.store.done == set(IDS) - set(bad)
    assert receiver.store.counts == dict.fromkeys(bad, 1)  # charged once, because it was rejected alone
    assert (report.outcome, report.count("acknowledged"), report.count("pending")) == ("partial", 64 - len(bad), len(bad))
    assert len(receiver.sent) <= 1 + 2 * len(bad) * math.log2(64)
    assert redrive_clock.slept == []


@pytest.mark.req("B-16")
@SYNC_AND_ASYNC
def test_bad_items_give_up_and_are_not_searched_again_in_the_same_call(kind: type, redrive_clock: FakeClock) -> None:
    receiver = kind(Store(), ["t010", "t050"])
    report = send(receiver)
    first = len(receiver.sent) - 3
    assert receiver.sent[first:] == [["t010", "t050"]] * 3  # retries of items that were rejected alone
    assert receiver.store.counts == {"t010": 4, "t050": 4}
    assert (report.retry_count, redrive_clock.slept) == (3, [2, 4, 8])
    send(receiver)
    assert set(receiver.store.gone) == {"t010", "t050"}
    assert receiver.store.gone["t010"] == "400 invalid batch"
    assert max(receiver.sends.values()) <= 5 + max(receiver.store.spared.values())


@pytest.mark.req("B-16")
def test_the_number_of_sends_is_limited_and_good_items_are_not_charged(redrive_clock: FakeClock) -> None:
    receiver = Sync(Store(), IDS[::2])  # every other item is bad
    report = send(receiver, settings=Settings(max_split_sends=10))
    assert len(receiver.sent) == 4 + 10
    assert not set(receiver.store.counts) - receiver.bad
    assert report.count("pending") == len(IDS) - report.count("acknowledged") - report.count("giveup")
    for _ in range(200):
        if report.next_retry_at is None:
            break
        report = send(receiver, settings=Settings(max_split_sends=10, max_uncharged_passes=2000))
    assert receiver.store.done == set(IDS) - receiver.bad
    assert set(receiver.store.gone) == receiver.bad


@pytest.mark.req("B-16", "B-15")
@pytest.mark.parametrize("uncharged", [1, 3, 20])
def test_no_item_is_sent_more_often_than_its_attempts_and_the_uncharged_passes(uncharged: int, redrive_clock: FakeClock) -> None:
    receiver = Sync(Store(), IDS)  # all of them
    calls = 0
    while receiver.store.pending(IDS):
        send(receiver, settings=Settings(max_uncharged_passes=uncharged))  # a process for each call
        calls += 1
        assert calls <= uncharged + 5
    assert max(receiver.sends.values()) <= 5 + uncharged


@pytest.mark.req("B-16")
@pytest.mark.parametrize(
    "report",
    [
        Report("failure", [ItemStatus("a", "rejected", "503 down"), ItemStatus("b", "rejected", "503 down")]),
        Report("failure", [ItemStatus("a", "rejected", "no"), ItemStatus("b", "rejected", "no", permanent=True)]),
        Report("failure", [ItemStatus("a", "rejected", "no"), ItemStatus("b", "rejected", "another reason")]),
        Report("failure", [ItemStatus("a", "rejected", "no")]),
        Report("failure", [ItemStatus("a", "rejected", "no"), ItemStatus("b", "pending")]),
        Report("failure", []),
        Report("partial", [ItemStatus("a", "rejected", "no"), ItemStatus("b", "acknowledged")]),
    ],
    ids=["transient", "permanent", "two reasons", "one item", "one sent", "nothing said", "partial"],
)
def test_other_reports_are_not_split(report: Report) -> None:
    class One:
        def __init__(self) -> None:
            self.calls: list[Any] = []

        def send_pending(self, only: Any = None) -> Report:
            self.calls.append(only)
            return report

    sender = One()
    retrying(sender, items=Store(), split="only", retry=RetryPolicy.disabled()).send_pending()
    assert sender.calls == [None]


@pytest.mark.req("B-16")
def test_without_split_every_item_is_charged(redrive_clock: FakeClock) -> None:
    receiver = Sync(Store(), ["t017"])
    retrying(receiver, items=receiver.store, retry=RetryPolicy.disabled()).send_pending()
    assert (len(receiver.sent), set(receiver.store.counts)) == (1, set(IDS))
    off = Sync(Store(), ["t017"])
    send(off, settings=Settings(max_in_call_retries=0, max_split_sends=0))
    assert (len(off.sent), set(off.store.counts)) == (1, set(IDS))


@pytest.mark.req("B-16", "B-7")
@SYNC_AND_ASYNC
def test_an_exception_during_a_split_is_raised(kind: type, redrive_clock: FakeClock) -> None:
    receiver = kind(Store(), ["t000"])
    take = receiver.take

    def fail_later(only: Any = None) -> Report:
        if len(receiver.sent) == 4:
            raise ConnectionError("gone")
        return take(only)  # type: ignore[no-any-return]

    receiver.take = fail_later
    with pytest.raises(ConnectionError, match="gone"):
        send(receiver)
    assert receiver.store.counts == {}
    assert receiver.store.spared["t000"] == 4  # earlier counts stay
    del receiver.take
    send(receiver, retry=RetryPolicy.disabled())
    assert receiver.store.done == set(IDS[1:])


@pytest.mark.req("B-16", "B-15")
def test_an_outage_during_a_split_is_not_charged(redrive_clock: FakeClock) -> None:
    receiver = Sync(Store(), ["t017"])
    take = receiver.take

    def down(only: Any = None) -> Report:
        report = take(only)
        if only is None:
            return report
        receiver.store.done.clear()
        return Report("failure", [ItemStatus(item, "rejected", "503 down") for item in receiver.sent[-1]])

    receiver.take = down  # type: ignore[method-assign]
    send(receiver, retry=RetryPolicy.disabled())
    assert len(receiver.sent) == 3  # two halves, and no smaller ones
    assert receiver.store.counts == {}
    assert set(receiver.store.spared.values()) == {2}


@pytest.mark.req("B-16", "C-8")
def test_a_split_stops_at_the_deadline(redrive_clock: FakeClock) -> None:
    receiver = Sync(Store(), ["t017"])
    take = receiver.take

    def slow(only: Any = None) -> Report:
        redrive_clock.advance(2)
        return take(only)

    receiver.take = slow  # type: ignore[method-assign]
    with deadline(5):
        send(receiver)
    assert len(receiver.sent) == 3


@pytest.mark.req("B-16")
def test_the_report_on_a_group_must_match_the_group() -> None:
    class Wrong:
        def send_pending(self, only: Any = None) -> Report:
            return Report("failure", [ItemStatus(item, "rejected", "no") for item in "abcd"])

    with pytest.raises(BadReport, match="unexpected item"):
        retrying(Wrong(), items=Store(), split="only").send_pending()


@pytest.mark.req("B-16")
def test_a_split_is_logged(redrive_clock: FakeClock, redrive_journal: Ring) -> None:
    send(Sync(Store(), ["t017"]), retry=RetryPolicy.disabled())
    (told,) = [record for record in redrive_journal.records if record.kind == "batch_split"]
    assert told.fields.items() >= {"operation": "Sync.send_pending", "items": 64, "reason": "400 invalid batch"}.items()


def test_invalid_split_options_are_rejected() -> None:
    import sqlalchemy as sa

    table = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Text), sa.Column("n", sa.Integer), sa.Column("s", sa.Text))
    items = TableItems(sa.create_engine("sqlite://"), id=table.c.id, attempts=table.c.n, status=table.c.s)
    receiver = Sync(Store(), [])
    for store in (PlainStore(), items):
        with pytest.raises(TypeError, match=r"split= needs TableItems\(uncharged=\.\.\.\)"):
            retrying(receiver, items=store, split="only")
    with pytest.raises(TypeError, match="max_uncharged_passes above 0"):
        retrying(receiver, items=Store(), split="only", settings=Settings(max_uncharged_passes=0))
    with pytest.raises(TypeError, match=r"split='some': the method has no such keyword argument \(it has flight, only\)"):
        retrying(receiver, items=Store(), split="some")
    with pytest.raises(TypeError, match="split= is the name"):
        retrying(receiver, items=Store(), split=True)  # type: ignore[arg-type]
    retrying(Script(), items=Store(), split="any")  # it takes **kwargs


@pytest.mark.req("B-6", "B-16")
def test_items_that_a_split_left_unsent_are_sent_in_the_next_pass(redrive_clock: FakeClock) -> None:
    """The connection is lost after the batch was rejected as a whole: its halves are reported as pending."""
    whole = Report("failure", [ItemStatus(item, "rejected", "400 invalid") for item in "ab"])
    unsent = [Report("partial", [ItemStatus(item, "pending", "no route")]) for item in "ab"]

    reports = [whole, *unsent, Report("success", [ItemStatus(item, "acknowledged") for item in "ab"])]

    class Lost:
        def send_pending(self, only: Any = None) -> Report:
            return reports.pop(0)

    report = retrying(Lost(), items=Store(), split="only").send_pending()
    assert (report.outcome, report.retry_count, report.count("acknowledged")) == ("success", 1, 2)
