"""The bare sender: what is pending in its own table goes to a provider, a hundred at a time; what is taken is marked."""

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
AT_ONCE = 100


def made(engine: Engine, many: int) -> None:
    """The table, with so many tiles, all pending."""
    METADATA.drop_all(engine)
    METADATA.create_all(engine)
    with engine.begin() as tx:
        tx.execute(insert(TILES), [{"id": f"tile-{n:06}", "status": "pending", "attempts": 0} for n in range(1, many + 1)])


def again(engine: Engine) -> None:
    """All pending again."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(update(TILES).values(status="pending", attempts=0))
        connection.exec_driver_sql("VACUUM ANALYZE tiles")


def table_items(engine: Engine) -> TableItems:
    return TableItems(engine, id=TILES.c.id, attempts=TILES.c.attempts, status=TILES.c.status, done="uploaded")


class Sender:
    """Over HTTP, on one connection. `spent` has the seconds of each pass."""

    def __init__(self, engine: Engine, port: int, items: Items | None = None) -> None:
        self.engine = engine
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.items = items
        self.spent: list[float] = []

    def send_pending(self) -> Report:
        began = time.perf_counter()
        with self.engine.connect() as connection:
            waiting = list(
                connection.execute(select(TILES.c.id).where(TILES.c.status == "pending").order_by(TILES.c.id)).scalars()
            )
        said: list[ItemStatus] = []
        for start in range(0, len(waiting), AT_ONCE):
            said += self._send(waiting[start : start + AT_ONCE])
        bad = sum(item.status == "rejected" for item in said)
        report = Report("success" if not bad else "failure" if bad == len(said) else "partial", said)
        self.spent.append(time.perf_counter() - began)
        return report

    def _send(self, some: list[str]) -> list[ItemStatus]:
        self.connection.request("POST", "/tiles", json.dumps(some))
        refused = set(json.loads(self.connection.getresponse().read()))
        taken = [item for item in some if item not in refused]
        with self.engine.begin() as tx:
            tx.execute(update(TILES).where(TILES.c.id.in_(taken)).values(status="uploaded"))
        return [
            ItemStatus(item, "rejected", "checksum") if item in refused else ItemStatus(item, "acknowledged") for item in some
        ]
