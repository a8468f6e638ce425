"""Shop: an app with work of every kind, for the console and the worker: `redrive work redrive.demo.shop:app`."""

from __future__ import annotations

import time
from typing import Any

from redrive import App, Event, Parking, RetryPolicy, retry
from redrive.partitions import Partition, Sink, row_count, unique

from .world import WORLD

TABLE = "CREATE TABLE IF NOT EXISTS shop_reserved (order_id text PRIMARY KEY)"
QUICK = RetryPolicy(max_attempts=4, backoff_base=0.2, backoff_max=2.0, jitter=0.2)
TWICE = RetryPolicy(max_attempts=2, backoff_base=0.2, jitter=0.1)
WORK_SECONDS = 0.02

CUSTOMERS = ("acme", "globex", "initech")

app = App(parking=Parking(least=5, first=1.0), stores={"raw": {"type": "memory"}})


@app.once("shop:{user}:{order}:charge:v1")
def charge(order: str, user: str) -> str:
    """Money moves once, however often it is asked for."""
    WORLD.ask("payments", fails=0.1)
    return f"charged {order}"


@app.command("orders.charge", key="shop:{user}:{order}:pay:v1", retry=QUICK)
def pay(order: str, user: str) -> str:
    """Charges, and has the receipt sent."""
    done = charge(order, user)
    receipt.submit(order, user)
    return done


@app.command("receipts.send", key="shop:{user}:{order}:receipt:v1", retry=QUICK)
def receipt(order: str, user: str) -> None:
    """Mail that fails now and then."""
    time.sleep(WORK_SECONDS)
    WORLD.ask("mail", fails=0.25)


@app.command("crm.sync", key="shop:{user}:{order}:crm:v1", retry=QUICK, concurrency=4)
async def sync(order: str, user: str) -> None:
    """A service that has outages: its commands wait, and none of them is to blame."""
    WORLD.ask("crm", fails=0.02)


@app.command("labels.print", key="shop:{user}:{order}:label:v1", retry=TWICE)
def label(order: str, user: str, street: str) -> None:
    """Has a bug: some streets cannot be printed."""
    time.sleep(WORK_SECONDS)
    WORLD.parse("printer", street)


@app.on("order.placed", name="stock", in_transaction=True)
def reserve(tx: Any, event: Event[dict[str, str]]) -> None:
    """Reserved in the transaction that settles the handler: once."""
    tx.exec_driver_sql("INSERT INTO shop_reserved VALUES (?)", (event.payload["order"],))


@app.on("order.placed", name="analytics", retry=TWICE)
def analyse(event: Event[dict[str, str]]) -> None:
    """A handler that gives up too soon."""
    WORLD.ask("warehouse", fails=0.3)


@app.command("shop.tally", cron="* * * * *")
def tally() -> None:
    """Every minute."""
    rates()


@retry(operation="rates.fetch", max_attempts=3, backoff_base=0.05, jitter=0.05, on=(ConnectionError, TimeoutError))
def rates() -> None:
    """A call in process."""
    WORLD.ask("rates", fails=0.3)


@app.dataset("erp", "orders", raw="raw", customers=CUSTOMERS, checks=[row_count(min=1), unique("id")], retry=QUICK, max_age=None)
def orders(partition: Partition, out: Sink) -> None:
    """Days of a source that answers late, and now and then with nothing at all."""
    WORLD.ask("erp", fails=0.25)
    lost = partition.customer_id == "globex" and partition.logical_date.day == 13
    many = 0 if lost and "erp" not in WORLD.mended else 3 + partition.logical_date.day % 5
    out.rows({"id": number, "day": partition.logical_date} for number in range(many))
