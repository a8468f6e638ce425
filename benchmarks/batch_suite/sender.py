"""The bare sender. It sends the pending rows of its table in requests of 100 items, and marks accepted items."""

import http.client
import json
import time

from sqlalchemy import Column, Engine, Integer, MetaData, Table, Text, insert, select, update

from redrive.batch import Items, ItemStatus, Report, TableItems

METADATA = MetaData()
TILES = Table(
    "tiles",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("status", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
)
REQUEST_SIZE = 100


def create_table(engine: Engine, count: int) -> None:
    """Create the table with pending tiles."""
    METADATA.drop_all(engine)
    METADATA.create_all(engine)
    with engine.begin() as tx:
        tx.execute(insert(TILES), [{"id": f"tile-{n:06}", "status": "pending", "attempts": 0} for n in range(1, count + 1)])


def reset_table(engine: Engine) -> None:
    """Mark all tiles as pending."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(update(TILES).values(status="pending", attempts=0))
        connection.exec_driver_sql("VACUUM ANALYZE tiles")


def table_items(engine: Engine) -> TableItems:
    return TableItems(engine, id=TILES.c.id, attempts=TILES.c.attempts, status=TILES.c.status, done="uploaded")


class Sender:
    """Sends over one HTTP connection. `spent` has the seconds of each pass."""

    def __init__(self, engine: Engine, port: int, items: Items | None = None) -> None:
        self.engine = engine
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.items = items
        self.spent: list[float] = []

    def send_pending(self) -> Report:
        began = time.perf_counter()
        with self.engine.connect() as connection:
            pending = list(
                connection.execute(select(TILES.c.id).where(TILES.c.status == "pending").order_by(TILES.c.id)).scalars()
            )
        statuses: list[ItemStatus] = []
        for start in range(0, len(pending), REQUEST_SIZE):
            statuses += self._send(pending[start : start + REQUEST_SIZE])
        rejected = sum(item.status == "rejected" for item in statuses)
        report = Report("success" if not rejected else "failure" if rejected == len(statuses) else "partial", statuses)
        self.spent.append(time.perf_counter() - began)
        return report

    def _send(self, items: list[str]) -> list[ItemStatus]:
        self.connection.request("POST", "/tiles", json.dumps(items))
        rejected = set(json.loads(self.connection.getresponse().read()))
        accepted = [item for item in items if item not in rejected]
        with self.engine.begin() as tx:
            tx.execute(update(TILES).where(TILES.c.id.in_(accepted)).values(status="uploaded"))
        return [
            ItemStatus(item, "rejected", "checksum") if item in rejected else ItemStatus(item, "acknowledged") for item in items
        ]
