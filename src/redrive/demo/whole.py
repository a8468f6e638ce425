"""Whole: the shop's day from the first order to the last, and the proof that nothing was lost on the way."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from redrive import App
from redrive.ops import DeadLetterFilter, Operator
from redrive.partitions.queries import Register

from . import shop, traffic
from .scene import Figures, Scene
from .stage import Stage
from .world import WORLD

ORDERS = 40
DAYS = 21
PATIENCE = 60.0
STILL = 0.05


class Unbalanced(Exception):
    """Something was lost, or done twice."""


def _play(stage: Stage) -> Figures:
    with tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder:
        before = os.environ.get("REDRIVE_LEDGER")
        os.environ["REDRIVE_LEDGER"] = f"sqlite:///{Path(folder) / 'shop.db'}"
        try:
            with shop.app:
                return _day(stage)
        finally:
            if before is None:
                del os.environ["REDRIVE_LEDGER"]
            else:
                os.environ["REDRIVE_LEDGER"] = before


def _day(stage: Stage) -> Figures:
    app, operator = shop.app, Operator(shop.app, actor="the demonstration")
    traffic.prepared()
    stage.line(f"{ORDERS} orders, services with errors, an outage of one service, and a printer with a bug.")
    seen = {"done": 0, "dead": 0}

    def look() -> int:
        """How many have not ended yet."""
        counts = app.ledger.counts().values()
        seen.update(done=sum(one.done for one in counts), dead=sum(one.dead for one in counts))
        return sum(one.ready + one.leased for one in counts)

    stage.bar("dead", lambda: seen["dead"])
    stage.bar("done", lambda: seen["done"])
    kinds = [kind.name for kind in app.kinds() if kind.name != "shop.tally"]
    with app.worker(threads=4, only=[*kinds, "erp/orders"]):
        WORLD.down.add("crm")
        for number in range(ORDERS):
            traffic.order(number)
        traffic.tiles(1)
        days = traffic.backfill(operator, DAYS)
        WORLD.down.discard("crm")
        _until(lambda: look() == 0 and settled(app) == days)
        bad = shades(app)["terminal"]
        stage.line(f"{seen['done']} done; {seen['dead']} dead letters and {bad} of {days} days wait for a decision", "yellow")
        found = seen["dead"]
        WORLD.mended |= {"printer", "warehouse", "mail", "payments", "erp"}
        replayed = 0
        for kind in sorted({letter.kind for letter in operator.dead_letters.find(DeadLetterFilter(limit=1000))}):
            replayed += len(
                operator.apply(operator.dead_letters.replay(DeadLetterFilter(kind=kind)), because="the cause is fixed").done
            )
        if bad:
            traffic.again(operator, DAYS)
        _until(lambda: look() == 0 and shades(app)["success"] == days)
    stage.line(f"fixed, and {replayed} replayed: {seen['dead']} dead letters left", "green")
    return {"orders": ORDERS, "found": found, "replayed": replayed, "days": days, "bad_days": bad, **proof(app, operator)}


def shades(app: App) -> Counter[str]:
    """How the days of the dataset stand."""
    return Counter(Register(app.ledger).counts().get(("erp", "orders"), {}))


def settled(app: App) -> int:
    """Days that are not to be tried again."""
    found = shades(app)
    return found["success"] + found["terminal"]


def proof(app: App, operator: Operator) -> dict[str, int]:
    """What came in is what came out; Unbalanced says what is not."""
    counts = app.ledger.counts()
    with app.ledger.begin() as tx:
        reserved = tx.exec_driver_sql("SELECT count(*) FROM shop_reserved").scalar_one()
    charged = len([key for key in operator.keys.find(domain="shop", limit=10 * ORDERS) if key.status == "completed"])
    wrong = list(app.ledger.imbalance())
    for kind, tally in counts.items():
        if tally.done + tally.dead + tally.dropped != tally.submitted:
            wrong.append(f"{kind}: {tally.submitted} submitted, {tally.done} done, {tally.dead} dead, {tally.dropped} replaced")
        if tally.done + tally.dead != ORDERS:
            wrong.append(f"{kind}: {ORDERS} orders, {tally.done} done and {tally.dead} dead")
    if reserved != ORDERS or charged != ORDERS:
        wrong.append(f"{ORDERS} orders, {reserved} reserved, {charged} charged")
    if not operator.audit.verify().holds:
        wrong.append("the chain of the audit log is broken")
    if wrong:
        raise Unbalanced("; ".join(wrong))
    return {
        "submitted": sum(tally.submitted for tally in counts.values()),
        "done": sum(tally.done for tally in counts.values()),
        "dead": sum(tally.dead for tally in counts.values()),
        "lost": sum(tally.submitted - tally.done - tally.dead - tally.dropped for tally in counts.values()),
        "doubled": max(0, reserved - ORDERS) + max(0, charged - ORDERS),
    }


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise Unbalanced("the work did not finish in time")
        time.sleep(STILL)


WHOLE = Scene(
    "whole",
    "A day of the shop, with consistent totals",
    _play,
    lambda figures: (
        f"{figures['orders']} orders, {figures['submitted']} jobs: {figures['found']} dead, {figures['replayed']} replayed, "
        f"{figures['done']} done; {figures['days']} days of data, {figures['bad_days']} of them bad at first; "
        f"lost {figures['lost']}, doubled {figures['doubled']}"
    ),
    "docs/how-to/operate/deploy.md",
)
