"""Two senders at the same time: the report of an item agrees with the store."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from sqlalchemy import Engine, update

from redrive import App
from redrive.batch import Items, ItemStatus, Report, Settings, TableItems, retrying
from redrive.batch.store.ledger import LedgerItems
from redrive.testing import instant
from tests.conformance.batch.world import TILES, plain_table_items, table_items, tiles

STORES = {"table": table_items, "plain table": plain_table_items}


def mark_uploaded(engine: Engine, *ids: str) -> None:
    """Do what the other sender does when the receiver accepts items."""
    with engine.begin() as tx:
        tx.execute(update(TILES).where(TILES.c.id.in_(ids)).values(status="uploaded"))


class Refused:
    """Sends the pending tiles, which are all rejected. `meanwhile` is the other sender."""

    def __init__(self, items: Items, ids: list[str], reason: str = "503 busy", *, permanent: bool = False) -> None:
        self.items, self.ids, self.reason, self.permanent = items, ids, reason, permanent
        self.meanwhile: Callable[[], object] = lambda: None

    def send_pending(self, only: Collection[str] | None = None) -> Report:
        sent = sorted(self.items.pending(self.ids if only is None else only))
        self.meanwhile()
        return Report("failure", [ItemStatus(i, "rejected", self.reason, permanent=self.permanent) for i in sent])


@pytest.mark.req("B-4")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("attempts", [1, 5], ids=["last attempt", "first attempt"])
def test_an_item_that_the_other_sender_uploaded_is_acknowledged(engine: Engine, store: str, attempts: int) -> None:
    items = STORES[store](engine)
    sender = Refused(items, ["t0", "t1", "t2"])
    sender.meanwhile = lambda: mark_uploaded(engine, "t0", "t2")
    with instant():
        settings = Settings(max_in_call_retries=1, max_per_item_attempts=attempts)
        report = retrying(sender, items=items, settings=settings).send_pending()
    assert {item.id: item.status for item in report.items if item.status == "acknowledged"}.keys() == {"t0", "t2"}
    assert report.outcome == "partial"
    assert [item.reason for item in report.items if item.id != "t1"] == ["", ""]
    assert report.count("giveup") == (1 if attempts == 1 else 0)
    assert {tile: row[0] for tile, row in tiles(engine).items() if tile < "t3"} == {
        "t0": "uploaded",
        "t1": "giveup" if attempts == 1 else "pending",
        "t2": "uploaded",
    }


@pytest.mark.req("B-4")
def test_a_call_whose_items_were_all_uploaded_by_the_other_sender_is_a_success(engine: Engine) -> None:
    items = table_items(engine)
    sender = Refused(items, ["t0", "t1"])
    sender.meanwhile = lambda: mark_uploaded(engine, "t0", "t1")
    with instant() as clock:
        report = retrying(sender, items=items).send_pending()
    assert (report.outcome, report.count("acknowledged"), report.next_retry_at) == ("success", 2, None)
    assert clock.slept == []


@pytest.mark.req("B-4")
def test_an_item_that_the_other_sender_gave_up_is_given_up(engine: Engine) -> None:
    items = table_items(engine)
    sender = Refused(items, ["t0", "t1"])
    sender.meanwhile = lambda: items.give_up("t0", "410 gone")
    with instant():
        report = retrying(sender, items=items, settings=Settings(max_in_call_retries=0)).send_pending()
    assert {item.id: item.status for item in report.items} == {"t0": "giveup", "t1": "pending"}


@pytest.mark.req("B-4")
@pytest.mark.parametrize("mode", ["whole batch", "split"])
def test_the_ledgers_items_that_the_other_sender_uploaded_are_acknowledged(
    app: App, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The other sender's acknowledgement comes between the count and the give-up."""
    items = app.items("tiles")
    give_up = LedgerItems.give_up_many

    def late(self: LedgerItems, reasons: dict[str, str]) -> set[str]:
        self.acknowledge_many(["t0"])
        return give_up(self, reasons)

    monkeypatch.setattr(LedgerItems, "give_up_many", late)
    sender = Refused(items, ["t0", "t1"], "422 checksum")
    settings = Settings(max_in_call_retries=2, max_per_item_attempts=1)
    split = "only" if mode == "split" else None
    with instant():
        report = retrying(sender, items=items, settings=settings, split=split).send_pending()
    assert {item.id: item.status for item in report.items} == {"t0": "acknowledged", "t1": "giveup"}
    assert (report.outcome, report.next_retry_at) == ("partial", None)
    assert items.acknowledged(["t0", "t1", "t9"]) == {"t0"}


@pytest.mark.req("B-4")
def test_a_senders_own_giveup_does_not_hide_an_uploaded_item(engine: Engine) -> None:
    items = table_items(engine)
    mark_uploaded(engine, "t0")

    class GivesUp:
        def send_pending(self) -> Report:
            return Report("partial", [ItemStatus("t0", "giveup", "410"), ItemStatus("t1", "giveup", "410")])

    with instant():
        report = retrying(GivesUp(), items=items).send_pending()
    assert {item.id: item.status for item in report.items} == {"t0": "acknowledged", "t1": "giveup"}
    assert tiles(engine)["t1"][0] == "giveup"


@pytest.mark.req("B-17")
def test_a_table_without_done_states_has_acknowledged_rows(engine: Engine) -> None:
    items = TableItems(engine, id=TILES.c.id, attempts=TILES.c.attempts, status=TILES.c.status)
    items.check()
    mark_uploaded(engine, "t0")
    items.give_up("t1", "x")
    assert items.acknowledged(["t0", "t1", "t2"]) == {"t0"}
