"""An outage: when all are refused for one reason, nobody is charged for it."""

from __future__ import annotations

import logging
import zlib

import pytest

from redrive import RetryPolicy
from redrive.batch import Settings, retrying
from redrive.journal import Ring
from redrive.testing import FakeClock, instant
from tests.unit.batch.world import COLOURS, Script, Sender, Store, partial, send


@pytest.mark.req("B-15")
@COLOURS
def test_a_poison_item_that_is_alone_still_gives_up(kind: type, redrive_clock: FakeClock) -> None:
    store = Store()
    first, _ = send(kind, store, ["bad"], lambda *_: "checksum")
    assert (first.outcome, store.counts, store.gone) == ("failure", {"bad": 4}, {})
    assert first.next_retry_at is not None
    second, inner = send(kind, store, ["bad"], lambda *_: "checksum")
    assert (second.outcome, second.next_retry_at, set(store.gone)) == ("failure", None, {"bad"})
    assert len(inner.sent) == 1


@pytest.mark.req("B-15")
@COLOURS
@pytest.mark.parametrize("some_pass", [False, True], ids=["full outage", "brown-out"])
def test_an_outage_gives_up_nobody_and_the_poison_in_it_still_does(
    kind: type, some_pass: bool, redrive_clock: FakeClock, redrive_journal: Ring
) -> None:
    """Poison alone gives up; brown-out and full outage give up nobody; both at once."""
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
    # It passes, and everything arrives.
    send(kind, store, ids, lambda *_: "")
    assert store.done == set(ids) - {"poison"}


@pytest.mark.req("B-15")
@pytest.mark.parametrize(
    ("many", "refused", "charged"),
    [(9, 9, True), (10, 10, False), (10, 9, False), (10, 8, True), (100, 89, True), (100, 90, False)],
)
def test_what_an_outage_is(many: int, refused: int, charged: bool) -> None:
    store = Store()
    ids = [f"t{n:03}" for n in range(many)]
    with instant():
        send(Sender, store, ids, lambda item, _: "503" if item < f"t{refused:03}" else "", retry=RetryPolicy.disabled())
    assert bool(store.increments) is charged


@pytest.mark.req("B-15")
def test_different_reasons_are_no_outage() -> None:
    store = Store()
    with instant():
        send(Sender, store, [f"t{n}" for n in range(20)], lambda item, _: f"bad checksum of {item}", retry=RetryPolicy.disabled())
    assert len(store.increments) == 20


@pytest.mark.req("B-15")
def test_an_outage_holds_for_the_call_however_few_are_left() -> None:
    store = Store()
    with instant():
        send(Sender, store, [f"t{n:02}" for n in range(12)], lambda item, turn: "" if turn > 1 and item > "t01" else "503")
    assert store.increments == []
    with instant():  # a new call of two: nobody can tell an outage from two bad items
        send(Sender, store, ["t00", "t01"], lambda *_: "503", retry=RetryPolicy.disabled())
    assert store.increments == ["t00", "t01"]


@pytest.mark.req("B-15")
def test_uncharged_passes_have_a_limit_of_their_own() -> None:
    store = Store()
    ids = [f"t{n}" for n in range(10)]
    inner = Sender(store, ids, lambda *_: "503")
    sender = retrying(inner, items=store, settings=Settings(max_uncharged_passes=6))
    calls = 0
    with instant():
        while len(store.gone) < 10:
            sender.send_pending()
            calls += 1
            assert calls < 10
    assert len(inner.sent) == 6 + 5  # spared six times, then charged five times


@pytest.mark.req("B-9")
def test_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    inner, store = Script(partial(a="", b="no")), Store()
    with caplog.at_level(logging.INFO, "redrive"):
        assert retrying(inner, items=store, enabled=False) is inner
        assert retrying(inner, items=store, settings=Settings(enabled=False)) is inner
    assert [record.getMessage() for record in caplog.records] == ["batch disabled operation=Script.send_pending"] * 2
