"""Batches with any responses, crashes and duplicates: no item is lost or counted twice, and all end."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.batch import ItemStatus, Report, Settings, retrying
from redrive.errors import BadReport
from redrive.testing import instant

IDS = [f"t{n}" for n in range(14)]
REASONS = ("", "", "", "checksum", "503", "503", "503")


class Crash(BaseException):
    """The process dies here."""


@dataclass
class World:
    """State that survives a crash: accepted items, the sender's marks, the store's counts."""

    crashes: list[bool]
    arrived: Counter[str] = field(default_factory=Counter)
    marked: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    gone: set[str] = field(default_factory=set)
    spared: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)
    sends: Counter[str] = field(default_factory=Counter)

    def step(self) -> None:
        """Crash here, if the script says it."""
        if self.crashes and self.crashes.pop():
            raise Crash

    # the store

    def increment(self, item_id: str, /) -> int:
        self.step()
        self.counts[item_id] += 1
        count = self.counts[item_id]
        self.step()
        return count

    def spare_many(self, item_ids: Collection[str], /) -> dict[str, int]:
        self.step()
        self.spared.update(item_ids)
        return {item_id: self.spared[item_id] for item_id in item_ids}

    def give_up(self, item_id: str, reason: str, /) -> bool:
        self.step()
        new = item_id not in self.gone
        self.gone.add(item_id)
        self.step()
        return new

    def pending(self, among: Collection[str], /) -> set[str]:
        return set(among) - self.gone - self.marked


class Sender:
    """Sends pending items. The provider accepts an item again that it has already."""

    def __init__(self, world: World, answers: list[str]) -> None:
        self.world = world
        self.answers = answers

    def send_pending(self) -> Report:
        world, said = self.world, []
        for item_id in sorted(world.pending(IDS)):
            world.sends[item_id] += 1
            why = "" if world.arrived[item_id] else self.answers.pop() if self.answers else ""
            if why:
                world.rejections[item_id] += 1
            else:
                world.arrived[item_id] += 1
                world.step()  # a crash here makes the next call send a duplicate
                world.marked.add(item_id)
            said.append(ItemStatus(item_id, "rejected" if why else "acknowledged", why))
        bad = sum(item.status == "rejected" for item in said)
        return Report("success" if not bad else "failure" if bad == len(said) else "partial", said)


@pytest.mark.req("B-4", "B-6", "B-8", "B-15")
@given(
    answers=st.lists(st.sampled_from(REASONS), max_size=400),
    crashes=st.lists(st.booleans() | st.just(False) | st.just(False), max_size=60),
    attempts=st.integers(1, 5),
    retries=st.integers(0, 4),
    uncharged=st.integers(0, 6),
    calls=st.integers(1, 8),
)
def test_report_and_store_agree_on_every_item(
    answers: list[str], crashes: list[bool], attempts: int, retries: int, uncharged: int, calls: int
) -> None:
    world = World(crashes)
    settings = Settings(retries, attempts, max_uncharged_passes=uncharged)
    for _ in range(calls):
        with instant(), contextlib.suppress(Crash):
            _check_balance(world, retrying(Sender(world, answers), items=world, settings=settings).send_pending(), settings)
        _sound(world, attempts)
    # When all items are accepted, every item that was not given up is acknowledged.
    world.crashes.clear()
    answers.clear()
    with instant():
        retrying(Sender(world, answers), items=world, settings=settings).send_pending()
    assert world.marked | world.gone == set(IDS)
    assert not world.marked & world.gone


def _check_balance(world: World, report: Report, settings: Settings) -> None:
    """acknowledged + given up + pending = sent, each item once, and the store agrees."""
    by: dict[str, set[str]] = {status: {item.id for item in report.items if item.status == status} for status in STATUSES}
    assert sum(map(len, by.values())) == len(report.items) == len({item.id for item in report.items})
    assert by["acknowledged"] <= world.marked
    assert by["giveup"] <= world.gone
    assert not by["pending"] & (world.marked | world.gone)
    assert not by["rejected"]
    assert (report.next_retry_at is not None) is bool(by["pending"])
    assert (report.outcome == "success") is (len(by["acknowledged"]) == len(report.items))
    assert 0 <= report.retry_count <= settings.max_in_call_retries


def _sound(world: World, attempts: int) -> None:
    for item_id in IDS:
        assert world.counts[item_id] <= world.rejections[item_id]  # only rejections are counted
        if item_id in world.gone:
            assert world.counts[item_id] >= attempts  # no item gives up early
        assert world.sends[item_id] <= world.rejections[item_id] + world.arrived[item_id]


STATUSES = ("acknowledged", "giveup", "pending", "rejected")


@pytest.mark.req("B-15")
@given(
    many=st.integers(10, 60),
    poison=st.integers(0, 2),
    lucky=st.lists(st.integers(0, 59), max_size=3),
    calls=st.integers(1, 10),
)
def test_an_outage_gives_up_only_poison_items(many: int, poison: int, lucky: list[int], calls: int) -> None:
    """Only poison items are charged in an outage of any length, even if a few items are accepted."""
    ids = [f"t{n:02}" for n in range(many)]
    bad = set(ids[: poison if many >= 30 else 0])
    store = Counted()

    class Down:
        def send_pending(self) -> Report:
            now = sorted(store.pending(ids))
            said = [ItemStatus(one, "rejected", "checksum" if one in bad else "503 unavailable") for one in now]
            arrived = {ids[n] for n in lucky if n < many} if many >= 60 else set()
            said = [ItemStatus(item.id, "acknowledged") if item.id in arrived - bad else item for item in said]
            return Report("partial" if any(item.status == "acknowledged" for item in said) else "failure", said)

    with instant():
        for _ in range(calls):
            retrying(Down(), items=store).send_pending()
    assert set(store.counts) == bad
    assert store.gone == (bad if calls >= 2 else set())


class Counted:
    """A store in memory."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.spared: Counter[str] = Counter()
        self.gone: set[str] = set()

    def increment(self, item_id: str, /) -> int:
        self.counts[item_id] += 1
        return self.counts[item_id]

    def give_up(self, item_id: str, reason: str, /) -> bool:
        self.gone.add(item_id)
        return True

    def pending(self, among: Any, /) -> set[str]:
        return set(among) - self.gone

    def spare_many(self, item_ids: Collection[str], /) -> dict[str, int]:
        self.spared.update(item_ids)
        return {item_id: self.spared[item_id] for item_id in item_ids}


REJECTIONS = st.sampled_from(["", "422 checksum", "busy", "503", "503 overloaded", "429", "504"])
FLAGS = st.sampled_from([{}, {}, {}, {"transient": True}, {"transient": False}])


@pytest.mark.req("B-15")
@given(
    data=st.data(), many=st.integers(1, 25), attempts=st.integers(1, 4), uncharged=st.integers(0, 5), retries=st.integers(0, 3)
)
def test_every_item_ends_within_its_attempts_and_the_uncharged_passes(
    data: st.DataObject, many: int, attempts: int, uncharged: int, retries: int
) -> None:
    """No item is sent more often than its attempts and uncharged passes, with a process for each call."""
    store, sends = Counted(), Counter[str]()
    ids = [f"t{n:02}" for n in range(many)]
    whole = data.draw(st.lists(st.none() | REJECTIONS, min_size=1, max_size=8), label="a reason for all items of a pass")

    class Rejected:
        def send_pending(self) -> Report:
            now = sorted(store.pending(ids))
            sends.update(now)
            alike = whole[sends.total() % len(whole)]
            said = []
            for item in now:
                reason = data.draw(REJECTIONS) if alike is None else alike
                flags = data.draw(FLAGS) if alike is None else {}
                said.append(ItemStatus(item, "rejected", reason, **flags))
            return Report("failure", said)

    settings = Settings(retries, attempts, max_uncharged_passes=uncharged)
    calls = 0
    with instant():
        while store.pending(ids):
            retrying(Rejected(), items=store, settings=settings).send_pending()
            calls += 1
            assert calls <= attempts + uncharged
    assert max(sends.values()) <= attempts + uncharged
    assert min(sends.values()) >= attempts  # and none gives up early
    assert set(store.counts.values()) == {attempts}


@pytest.mark.req("B-16")
@given(st.integers(2, 40), st.sets(st.integers(0, 39)), st.integers(8, 40), st.integers(0, 3))
def test_a_split_finds_exactly_the_bad_items(many: int, bad: set[int], sends: int, retries: int) -> None:
    """Good items are accepted and bad ones give up, for any bad items and any limit of sends."""
    store, arrived, received = Counted(), set[str](), Counter[str]()
    ids = [f"t{n:02}" for n in range(many)]
    poison = {ids[n] for n in bad if n < many}
    groups = 0

    class Receiver:
        def send_pending(self, only: Collection[str] | None = None) -> Report:
            nonlocal groups
            groups += only is not None
            now = sorted(store.pending(ids if only is None else only) - arrived)
            received.update(now)
            if poison.intersection(now):
                return Report("failure", [ItemStatus(item, "rejected", "400 invalid") for item in now])
            arrived.update(now)
            return Report("success", [ItemStatus(item, "acknowledged") for item in now])

    settings = Settings(retries, 2, max_uncharged_passes=10_000, max_split_sends=sends)
    calls = 0
    with instant():
        while store.pending(ids) - arrived:
            retrying(Receiver(), items=store, settings=settings, split="only").send_pending()
            calls += 1
            assert calls <= 2 * many + 2
            assert groups <= calls * sends
    assert (arrived, store.gone) == (set(ids) - poison, poison)
    assert set(store.counts) == poison
    assert all(received[item] <= store.spared[item] + 2 for item in ids)


STATUS_LISTS = st.lists(st.sampled_from(("acknowledged", "rejected", "pending", "giveup")), min_size=1, max_size=6)


@pytest.mark.req("B-6", "B-15")
@given(
    passes=st.lists(st.tuples(st.sampled_from(("success", "partial", "failure")), STATUS_LISTS), min_size=1, max_size=5),
    gone=st.sets(st.integers(0, 5)),
    retries=st.integers(0, 4),
)
def test_a_report_with_pending_items_has_a_time_to_send_again(
    passes: list[tuple[Any, list[Any]]], gone: set[int], retries: int
) -> None:
    """Any valid reports of a sender: a call that leaves items pending says when to send them."""
    store = Counted()
    store.gone = {f"t{n}" for n in gone}
    script = list(passes)

    class Scripted:
        def send_pending(self) -> Report:
            outcome, statuses = script.pop(0) if len(script) > 1 else script[0]
            return Report(outcome, [ItemStatus(f"t{n}", status, "no") for n, status in enumerate(statuses)])

    with instant() as clock, contextlib.suppress(BadReport):
        report = retrying(Scripted(), items=store, settings=Settings(retries)).send_pending()
        assert (report.next_retry_at is not None) is bool(report.count("pending"))
        assert len(clock.slept) == report.retry_count
