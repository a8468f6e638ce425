"""A table of the user, a sender that uses it, and processes that crash."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import closing

import sqlalchemy
from sqlalchemy import Column, Engine, Integer, MetaData, Table, Text, insert, select, update

from redrive import App
from redrive.batch import Items, ItemStatus, Report, Settings, TableItems, retrying
from redrive.ledger import failpoint
from redrive.testing import instant

METADATA = MetaData()
TILES = Table(
    "tiles",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("status", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("sent", Integer, nullable=False, server_default="0"),
    Column("uncharged", Integer),
    Column("why", Text),
)


def engine_at(url: str) -> Engine:
    """Return an engine of the ledger's database, as a user opens it."""
    return sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), connect_args=_patient(url))


def _patient(url: str) -> dict[str, object]:
    return {"timeout": 30} if url.startswith("sqlite") else {}


def add_tiles(engine: Engine, many: int) -> None:
    with engine.begin() as tx:
        tx.execute(insert(TILES), [{"id": f"t{n}", "status": "pending", "attempts": 0} for n in range(many)])


def tiles(engine: Engine) -> dict[str, tuple[str, int, int]]:
    """Return the status of each tile, its attempts, and how often it was sent."""
    with engine.connect() as connection:
        return {row.id: (row.status, row.attempts, row.sent) for row in connection.execute(select(TILES))}


def table_items(engine: Engine) -> TableItems:
    more = {"uncharged": TILES.c.uncharged, "reason": TILES.c.why}
    return TableItems(engine, id=TILES.c.id, attempts=TILES.c.attempts, status=TILES.c.status, done="uploaded", **more)


def plain_table_items(engine: Engine) -> TableItems:
    """Return a store without the optional columns."""
    return TableItems(engine, id=TILES.c.id, attempts=TILES.c.attempts, status=TILES.c.status, done="uploaded")


class Tiles:
    """Sends each pending tile and marks it if it is accepted. `refuse` returns the reason of a rejection."""

    def __init__(self, engine: Engine, items: Items, refuse: Callable[[str], str]) -> None:
        self.engine = engine
        self.items = items
        self.refuse = refuse

    def send_pending(self) -> Report:
        with self.engine.connect() as connection:
            waiting = list(
                connection.execute(select(TILES.c.id).where(TILES.c.status == "pending").order_by(TILES.c.id)).scalars()
            )
        waiting = sorted(self.items.pending(waiting))
        said = []
        for tile in waiting:
            why = self.refuse(tile)
            with self.engine.begin() as tx:
                values = {"sent": TILES.c.sent + 1} | ({} if why else {"status": "uploaded"})
                tx.execute(update(TILES).where(TILES.c.id == tile).values(values))
            here("inside.sent")
            said.append(ItemStatus(tile, "rejected" if why else "acknowledged", why))
        bad = sum(item.status == "rejected" for item in said)
        return Report("success" if not bad else "failure" if bad == len(said) else "partial", said)


def upload(
    url: str,
    store: str,
    poison: Iterable[str],
    calls: int = 1,
    item_attempts: int = 5,
    reason: str = "checksum",
    uncharged: int = 200,
) -> Report:
    """Make calls in this process. `store` is "ledger" or "table"."""
    engine = engine_at(url)
    bad = frozenset(poison)
    with App(url) as app, closing(_Disposed(engine)), instant():
        items: Items = app.items("tiles") if store == "ledger" else table_items(engine)
        sender = Tiles(engine, items, lambda tile: reason if tile in bad else "")
        report = Report("success", [])
        for _ in range(calls):
            told = Settings(max_per_item_attempts=item_attempts, max_uncharged_passes=uncharged)
            report = retrying(sender, items=items, settings=told).send_pending()
        return report


class _Disposed:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def close(self) -> None:
        self.engine.dispose()


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["redrive.app", "redrive.batch.sender", "redrive.batch.store.ledger", "redrive.batch.store.table", "psycopg"]
)


def dies(at: str, target: Callable[..., object], *arguments: object) -> int | None:
    """Run a function in a process that crashes at a step, and return its exit status."""
    child = FORKS.Process(target=_run_armed, args=(at, target, arguments))
    child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
    return child.exitcode


def _run_armed(at: str, target: Callable[..., object], arguments: tuple[object, ...]) -> None:
    if at.startswith("inside."):
        name, _, nth = at.partition(":")
        INSIDE[name] = int(nth or 1)
    else:
        point = failpoint.arm(at)
        for module in list(sys.modules.values()):
            if getattr(module, "crash_point", None) is failpoint.crash_point and module is not failpoint:
                module.crash_point = point  # type: ignore[attr-defined]  # the variable is read when it is imported: too early here
    target(*arguments)


INSIDE: dict[str, int] = {}


def here(point: str) -> None:
    """A crash point in the user's code."""
    if point in INSIDE:
        INSIDE[point] -= 1
        if not INSIDE[point]:
            os.kill(os.getpid(), signal.SIGKILL)
