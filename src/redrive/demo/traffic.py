"""Traffic: orders that come in, and what each of them sets off; and a batch now and then."""

from __future__ import annotations

import threading
from datetime import date, datetime, timedelta, timezone
from itertools import count

from redrive import Event, correlate
from redrive.batch import Items, ItemStatus, Report, retrying
from redrive.ops import Operator

from . import shop
from .world import WORLD

USERS = ("ann", "bob", "cat", "dan", "eve", "fay", "gil", "hal")
STREETS = ("High Street 1", "Hauptstraße 2", "Rue Haute 3", "Main Street 4", "Calle Mayor 5", "Via Alta 6", "Storgatan 7")
TILES = 20


def order(number: int) -> None:
    """One order, from the door on: an event, three commands, a call."""
    name, user = f"o-{number}", USERS[number % len(USERS)]
    with correlate(request_id=f"r-{number}", user_id=user, session_id=f"s-{number // 5}"):
        shop.app.receive(Event("order.placed", {"order": name, "user": user}, id=name, source="web"))
        shop.pay.submit(name, user=user)
        shop.sync.submit(name, user=user)
        shop.label.submit(name, user=user, street=STREETS[number % len(STREETS)])
        try:
            shop.rates()
        except (ConnectionError, TimeoutError):
            pass  # three attempts, and it is no more than a rate: the next order asks again


def backfill(operator: Operator, days: int, rate: float | None = None) -> int:
    """The last so many days of the dataset, beside all else; how many partitions. rate: so many in a second, to be watched."""
    plan = operator.backfills.plan("erp/orders", *_last(days), share=0.5)
    operator.begin(plan, because="history for a new report", rate=rate)
    return plan.count


def again(operator: Operator, days: int) -> None:
    """What went wrong of these, now that the source is mended."""
    plan = operator.partitions.retry("erp/orders", *_last(days), clear_terminal=True)
    operator.begin(plan, because="the source is fixed", without_raw=True)


def _last(days: int) -> tuple[date, date]:
    until = datetime.now(timezone.utc).date() - timedelta(days=1)
    return until - timedelta(days=days - 1), until


def prepared() -> None:
    """The shop's own table, in the ledger's database."""
    with shop.app.ledger.begin() as tx:
        tx.exec_driver_sql(shop.TABLE)


class Tiles:
    """A sender whose receiver refuses some items for good."""

    def __init__(self, items: Items, names: list[str]) -> None:
        self._items, self._names = items, names

    def send_pending(self) -> Report:
        """Report on each."""
        said = [
            ItemStatus(name, "rejected", "checksum mismatch") if name.endswith("7") else ItemStatus(name, "acknowledged")
            for name in sorted(self._items.pending(self._names))
        ]
        refused = sum(one.status == "rejected" for one in said)
        return Report("success" if not refused else "failure" if refused == len(said) else "partial", said)


def tiles(number: int) -> None:
    """One batch."""
    names = [f"t{number}-{each}" for each in range(TILES)]
    items = shop.app.items("tiles")
    retrying(Tiles(items, names), items=items, retry=shop.TWICE, item_attempts=2).send_pending()


def flow(over: threading.Event, *, first: int, every: float) -> None:
    """Orders, one after the other, until it is over. The services have their bad minutes."""
    for number in count(first):
        if over.is_set():
            return
        if number % 60 == 20:
            WORLD.down.add("crm")
        if number % 60 == 45:
            WORLD.down.discard("crm")
        order(number)
        if number % 15 == 1:
            tiles(number)
        over.wait(every)
