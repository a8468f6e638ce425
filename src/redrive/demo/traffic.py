"""The simulated traffic of the demo shop: orders, batches and a backfill."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from itertools import count

from redrive import Event, correlate
from redrive.batch import Items, ItemStatus, Report, retrying
from redrive.ops import Operator

from . import shop
from .shop import SERVICES, report_items

USERS = ("ann", "bob", "cat", "dan", "eve", "fay", "gil", "hal")
STREETS = (
    "High Street 1",
    "Hauptstraße 2",
    "Rue Haute 3",
    "Main Street 4",
    "Calle Mayor 5",
    "Via Alta 6",
    "Storgatan 7",
)
BATCH_SIZE = 20


def place_order(number: int) -> None:
    """Place one order: an event, three commands and a call."""
    name, user = f"o-{number}", USERS[number % len(USERS)]
    with correlate(request_id=f"r-{number}", user_id=user, session_id=f"s-{number // 5}"):
        event = Event("order.placed", {"order": name, "user": user}, id=name, source="web")
        shop.app.receive(event)
        shop.pay.submit(name, user=user)
        shop.sync.submit(name, user=user)
        shop.label.submit(name, user=user, street=STREETS[number % len(STREETS)])
        with suppress(ConnectionError, TimeoutError):  # the next order fetches the rates again
            shop.rates()


def start_backfill(operator: Operator, days: int, rate: float | None = None) -> int:
    """Backfill the last days of the dataset.

    Args:
        operator: Who starts it.
        days: Number of days, up to yesterday.
        rate: Maximum number of partitions in a second.

    Returns:
        The number of partitions.
    """
    plan = operator.backfills.plan("erp/orders", *_last_days(days), share=0.5)
    operator.begin(plan, because="history for a new report", rate=rate)
    return plan.count


def retry_failed_days(operator: Operator, days: int) -> None:
    """Retry the failed partitions of the last days."""
    plan = operator.partitions.retry("erp/orders", *_last_days(days), clear_terminal=True)
    operator.begin(plan, because="the source is fixed", without_raw=True)


def _last_days(days: int) -> tuple[date, date]:
    until = datetime.now(timezone.utc).date() - timedelta(days=1)
    return until - timedelta(days=days - 1), until


class TileSender:
    """A sender whose receiver always rejects some items."""

    def __init__(self, items: Items, names: list[str]) -> None:
        self._items, self._names = items, names

    def send_pending(self) -> Report:
        """Send the pending items, and report on each."""
        pending = sorted(self._items.pending(self._names))
        return report_items([self._send(name) for name in pending])

    @staticmethod
    def _send(name: str) -> ItemStatus:
        if name.endswith("7"):
            return ItemStatus(name, "rejected", "checksum mismatch")
        return ItemStatus(name, "acknowledged")


def send_batch(number: int) -> None:
    """Send one batch of tiles."""
    names = [f"t{number}-{position}" for position in range(BATCH_SIZE)]
    items = shop.app.items("tiles")
    sender = TileSender(items, names)
    retrying(sender, items=items, retry=shop.TWO_ATTEMPTS, item_attempts=2).send_pending()


def place_orders(stop: threading.Event, *, first: int, interval: float) -> None:
    """Place orders until the stop event is set. The CRM has an outage in every 60 orders."""
    for number in count(first):
        if stop.is_set():
            return
        if number % 60 == 20:
            SERVICES.down.add("crm")
        if number % 60 == 45:
            SERVICES.down.discard("crm")
        place_order(number)
        if number % 15 == 1:
            send_batch(number)
        stop.wait(interval)
