"""The demo shop: an app with every kind of work.

Run a worker for it with `redrive work redrive.demo.shop:app`. A fixed seed makes the faults of its
external services the same in every run.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from redrive import App, Event, Parking, RetryPolicy, Stop, retry
from redrive.batch import ItemStatus, Report
from redrive.partitions import Partition, Sink, row_count, unique

SEED = 20260131


class ExternalServices:
    """Services that fail on demand. Threads may share one."""

    def __init__(self) -> None:
        self._random = random.Random(SEED)
        self._lock = threading.Lock()
        self.down: set[str] = set()
        """Services in an outage."""
        self.fixed: set[str] = set()
        """Services whose bug or flakiness was fixed."""

    def call(self, service: str, *, failure_rate: float = 0.0) -> None:
        """Send one request. It fails in an outage, and at random until the service is fixed."""
        with self._lock:
            draw = self._random.random()
        if service in self.down:
            raise ConnectionError(f"{service} is down")
        if draw < failure_rate and service not in self.fixed:
            raise TimeoutError(f"{service} did not respond in time")

    def parse(self, service: str, text: str) -> None:
        """Parse a text. Until the service is fixed, a bug rejects every text with a sharp s."""
        if "ß" in text and service not in self.fixed:
            raise Stop(f"{service}: street names with sharp s cannot be printed")


SERVICES = ExternalServices()


def report_items(statuses: Sequence[ItemStatus]) -> Report:
    """Return the report of a receiver that accepted or rejected each item of a batch."""
    rejected = sum(item.status == "rejected" for item in statuses)
    if not rejected:
        return Report("success", statuses)
    return Report("failure" if rejected == len(statuses) else "partial", statuses)


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
