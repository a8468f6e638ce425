"""The demo shop: an app with every kind of work.

Run a worker for it with `redrive work redrive.demo.shop:app`.
"""

from __future__ import annotations

import time
from typing import Any

from redrive import App, Event, Parking, RetryPolicy, retry
from redrive.partitions import Partition, Sink, row_count, unique

from .services import SERVICES

RESERVATIONS_TABLE = "CREATE TABLE IF NOT EXISTS shop_reserved (order_id text PRIMARY KEY)"
FOUR_ATTEMPTS = RetryPolicy(max_attempts=4, backoff_base=0.2, backoff_max=2.0, jitter=0.2)
TWO_ATTEMPTS = RetryPolicy(max_attempts=2, backoff_base=0.2, jitter=0.1)
WORK_SECONDS = 0.02

CUSTOMERS = ("acme", "globex", "initech")

app = App(parking=Parking(least=5, first=1.0), stores={"raw": {"type": "memory"}})


@app.once("shop:{user}:{order}:charge:v1")
def charge(order: str, user: str) -> str:
    """Charge an order exactly once, even if it is requested several times."""
    SERVICES.call("payments", failure_rate=0.1)
    return f"charged {order}"


@app.command("orders.charge", key="shop:{user}:{order}:pay:v1", retry=FOUR_ATTEMPTS)
def pay(order: str, user: str) -> str:
    """Charge an order, and enqueue its receipt."""
    result = charge(order, user)
    receipt.submit(order, user)
    return result


@app.command("receipts.send", key="shop:{user}:{order}:receipt:v1", retry=FOUR_ATTEMPTS)
def receipt(order: str, user: str) -> None:
    """Send a receipt by mail, which sometimes fails."""
    time.sleep(WORK_SECONDS)
    SERVICES.call("mail", failure_rate=0.25)


@app.command("crm.sync", key="shop:{user}:{order}:crm:v1", retry=FOUR_ATTEMPTS, concurrency=4)
async def sync(order: str, user: str) -> None:
    """Call a service that has outages, in which its commands are parked."""
    SERVICES.call("crm", failure_rate=0.02)


@app.command("labels.print", key="shop:{user}:{order}:label:v1", retry=TWO_ATTEMPTS)
def label(order: str, user: str, street: str) -> None:
    """Print a label. A bug rejects some streets."""
    time.sleep(WORK_SECONDS)
    SERVICES.parse("printer", street)


@app.on("order.placed", name="stock", in_transaction=True)
def reserve(tx: Any, event: Event[dict[str, str]]) -> None:
    """Reserve the goods exactly once, in the transaction that settles the job."""
    tx.exec_driver_sql("INSERT INTO shop_reserved VALUES (?)", (event.payload["order"],))


@app.on("order.placed", name="analytics", retry=TWO_ATTEMPTS)
def analyse(event: Event[dict[str, str]]) -> None:
    """Call a flaky service with too few attempts."""
    SERVICES.call("warehouse", failure_rate=0.3)


@app.command("shop.tally", cron="* * * * *")
def tally() -> None:
    """Run every minute."""
    rates()


@retry(
    operation="rates.fetch",
    max_attempts=3,
    backoff_base=0.05,
    jitter=0.05,
    on=(ConnectionError, TimeoutError),
)
def rates() -> None:
    """Call a flaky service from the same process."""
    SERVICES.call("rates", failure_rate=0.3)


@app.dataset(
    "erp",
    "orders",
    raw="raw",
    customers=CUSTOMERS,
    checks=[row_count(min=1), unique("id")],
    retry=FOUR_ATTEMPTS,
    max_age=None,
)
def orders(partition: Partition, out: Sink) -> None:
    """Extract one day from a flaky source that returns some days without rows."""
    SERVICES.call("erp", failure_rate=0.25)
    day = partition.logical_date
    is_empty = partition.customer_id == "globex" and day.day == 13 and "erp" not in SERVICES.fixed
    count = 0 if is_empty else 3 + day.day % 5
    out.rows({"id": number, "day": day} for number in range(count))


def create_tables() -> None:
    """Create the table of the shop in the database of the ledger."""
    with app.ledger.begin() as tx:
        tx.exec_driver_sql(RESERVATIONS_TABLE)
