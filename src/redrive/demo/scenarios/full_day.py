"""The scenario of a whole day in the shop, with a check that no work was lost or done twice."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

from redrive import App
from redrive.ops import DeadLetterFilter, Operator
from redrive.partitions.queries import PartitionQueries

from .. import shop, traffic
from ..shop import SERVICES
from .scenario import Display, Figures, Scenario, wait_until

ORDERS = 40
DAYS = 21


class Unbalanced(Exception):
    """Work was lost or done twice."""


def _run_day(display: Display) -> Figures:
    with tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder:
        os.environ["REDRIVE_LEDGER"] = f"sqlite:///{Path(folder) / 'shop.db'}"
        with shop.app:
            return _sell_and_fix(display)


def _sell_and_fix(display: Display) -> Figures:
    app, operator = shop.app, Operator(shop.app, actor="the demonstration")
    shop.create_tables()
    display.line(
        f"{ORDERS} orders, services with errors, an outage of one service, "
        "and a printer with a bug."
    )
    latest = {"done": 0, "dead": 0}

    def count_open() -> int:
        """Return the number of jobs that have not ended."""
        counts = app.ledger.counts().values()
        latest.update(
            done=sum(kind.done for kind in counts), dead=sum(kind.dead for kind in counts)
        )
        return sum(kind.ready + kind.leased for kind in counts)

    display.bar("dead", lambda: latest["dead"])
    display.bar("done", lambda: latest["done"])
    kinds = [kind.name for kind in app.kinds() if kind.name != "shop.tally"]
    with app.worker(threads=4, only=[*kinds, "erp/orders"]):
        SERVICES.down.add("crm")
        for number in range(ORDERS):
            traffic.place_order(number)
        traffic.send_batch(1)
        days = traffic.start_backfill(operator, DAYS)
        SERVICES.down.discard("crm")
        wait_until(lambda: count_open() == 0 and count_ended_days(app) == days, "orders")
        dead, bad_days = latest["dead"], count_days(app)["terminal"]
        display.line(
            f"{latest['done']} done; {dead} dead letters and {bad_days} of {days} days "
            "wait for a decision",
            "yellow",
        )
        SERVICES.fixed |= {"printer", "warehouse", "mail", "payments", "erp"}
        replayed = 0
        letters = operator.dead_letters.find(DeadLetterFilter(limit=1000))
        for kind in sorted({letter.kind for letter in letters}):
            plan = operator.dead_letters.replay(DeadLetterFilter(kind=kind))
            replayed += len(operator.apply(plan, because="the cause is fixed").done)
        if bad_days:
            traffic.retry_failed_days(operator, DAYS)
        wait_until(lambda: count_open() == 0 and count_days(app)["success"] == days, "replay")
    display.line(f"fixed, and {replayed} replayed: {latest['dead']} dead letters left", "green")
    return {
        "orders": ORDERS,
        "found": dead,
        "replayed": replayed,
        "days": days,
        "bad_days": bad_days,
        **check_totals(app, operator),
    }


def count_days(app: App) -> Counter[str]:
    """Count the days of the dataset by status."""
    return Counter(PartitionQueries(app.ledger).counts().get(("erp", "orders"), {}))


def count_ended_days(app: App) -> int:
    """Count the days that are accepted or given up."""
    counts = count_days(app)
    return counts["success"] + counts["terminal"]


def check_totals(app: App, operator: Operator) -> dict[str, int]:
    """Return the totals of the day. Unbalanced: they do not match the orders."""
    counts = app.ledger.counts()
    with app.ledger.begin() as tx:
        reserved = tx.exec_driver_sql("SELECT count(*) FROM shop_reserved").scalar_one()
    keys = operator.keys.find(domain="shop", limit=10 * ORDERS)
    charged = sum(key.status == "completed" for key in keys)
    problems = list(app.ledger.imbalance())
    for kind, tally in counts.items():
        if tally.done + tally.dead + tally.dropped != tally.submitted:
            problems.append(
                f"{kind}: {tally.submitted} submitted, {tally.done} done, {tally.dead} dead, "
                f"{tally.dropped} replaced"
            )
        if tally.done + tally.dead != ORDERS:
            problems.append(f"{kind}: {ORDERS} orders, {tally.done} done and {tally.dead} dead")
    if reserved != ORDERS or charged != ORDERS:
        problems.append(f"{ORDERS} orders, {reserved} reserved, {charged} charged")
    if not operator.audit.verify().holds:
        problems.append("the hash chain of the audit log is broken")
    if problems:
        raise Unbalanced("; ".join(problems))
    submitted, done, dead, dropped = (
        sum(getattr(tally, name) for tally in counts.values())
        for name in ("submitted", "done", "dead", "dropped")
    )
    return {
        "submitted": submitted,
        "done": done,
        "dead": dead,
        "lost": submitted - done - dead - dropped,
        "doubled": max(0, reserved - ORDERS) + max(0, charged - ORDERS),
    }


FULL_DAY = Scenario(
    "whole",
    "A day of the shop, with consistent totals",
    _run_day,
    lambda figures: (
        f"{figures['orders']} orders, {figures['submitted']} jobs: {figures['found']} dead, "
        f"{figures['replayed']} replayed, {figures['done']} done; {figures['days']} days of data, "
        f"{figures['bad_days']} of them bad at first; "
        f"lost {figures['lost']}, doubled {figures['doubled']}"
    ),
    "docs/how-to/operate/deploy.md",
)
