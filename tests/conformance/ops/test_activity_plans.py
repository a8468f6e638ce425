"""A week of activity is read through indexes: its cost does not grow with older history, job types or jobs."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, event, insert

from redrive.ledger import Ledger
from redrive.ledger.db.tables import activity, failure, failure_slot
from redrive.ledger.stats.activity import ALL_KINDS, HOURS_KEPT, MINUTES_KEPT, SUMMED, TEN_MINUTES_KEPT, minute_of
from redrive.ledger.stats.failure_groups import SLOT_SECONDS
from redrive.ledger.stats.histogram import to_text
from redrive.ops.operator import Operator
from tests.conformance.ledger.world import session

WEEK = timedelta(days=7)
KINDS = 10
# Minutes of the last hours, ten minutes of the last days, and hours before: the rows of one job type.
SPANS = ((1, MINUTES_KEPT), (10, TEN_MINUTES_KEPT), (60, HOURS_KEPT))
MAX_ROWS = 3 * 60 + 36 * 6 + 7 * 24
"""Rows of one job type and a week."""
SCAN = re.compile("(SCAN|Seq Scan on) redrive_(activity|failure_slot)")


def fill(ledger: Ledger, since: timedelta, until: timedelta = timedelta(0)) -> None:
    """Write the activity and the failures between two ages, as workers and maintenance leave them."""
    now = ledger.now()
    oldest, newest = minute_of(now - since), minute_of(now - until)
    newest -= newest % 60 if until else 0  # whole hours, of which the newer ones are stored
    counts = {"done": 5, "failed": 1, "dead": 0, "cancelled": 0, "wait": to_text({10: 6}), "run": to_text({20: 6})}
    kinds = [ALL_KINDS, *(f"kind-{number}" for number in range(KINDS))]
    rows, last = [], newest
    for span, kept in SPANS:
        start = max(oldest, minute_of(now - kept)) // span * span
        slots = [{"slot": slot, "span": span, "worker": SUMMED, **counts} for slot in range(start, last, span)]
        rows += [{"kind": kind, **slot} for slot in slots for kind in kinds]
        last = min(last, start)
    minutes = SLOT_SECONDS // 60
    groups = [(f"kind-{number}", f"Error {number}") for number in range(KINDS)]
    hours = range(oldest // 60 * 60 // minutes, newest // minutes, 6)
    failures = [{"kind": k, "signature": s, "slot": slot, "tries": 1, "died": 0} for k, s in groups for slot in hours]
    seen = [{"kind": k, "signature": s, "first_at": now - since, "last_at": now} for k, s in groups]
    with session(ledger) as held:
        with held.transaction("activity") as connection:
            connection.execute(insert(activity), rows)
            connection.execute(insert(failure_slot), failures)
            if not until:
                connection.execute(insert(failure), seen)
        held.core.execute(sqlalchemy.text("ANALYZE"))


def read_week(ledger: Ledger, ann: Operator) -> tuple[int, list[str]]:
    """Read a week. Return its cost (rows on Postgres, steps of the virtual machine on SQLite), and the plan of each statement."""
    ran: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        ran.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        report = ann.overview.activity(since=ledger.now() - WEEK)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert (len(report.kinds), len(report.points) <= 91, report.total.ended > 0) == (KINDS, True, True)
    assert len(report.causes) > 0
    cost, plans = 0, []
    with session(ledger) as held:
        for statement, parameters in ran:
            if "redrive_" not in statement:
                continue
            if held.sqlite:
                plan = held.core.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
                plans.append("\n".join([statement, *(str(row[-1]) for row in plan)]))
                cost += steps_of(held.raw, statement, parameters)
            else:
                plan = held.core.exec_driver_sql(f"EXPLAIN (ANALYZE, TIMING OFF) {statement}", parameters).all()
                text = "\n".join(str(row[0]) for row in plan)
                plans.append(f"{statement}\n{text}")
                cost += rows_of(text)
    return cost, plans


def steps_of(connection: Any, statement: str, parameters: Any) -> int:
    """Return how many steps SQLite takes for a statement, in hundreds."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    connection.set_progress_handler(tick, 100)
    try:
        connection.execute(statement, parameters).fetchall()
    finally:
        connection.set_progress_handler(None, 0)
    return count


def rows_of(plan: str) -> int:
    """Return the rows that the scans of a Postgres plan have read, with those that a filter removed."""
    count = 0.0
    for line in plan.splitlines():
        if scan := re.search(r"Scan .*redrive_.*rows=([\d.]+) loops=(\d+)", line.partition("(cost")[0] + line.rpartition("(")[2]):
            count += float(scan[1]) * int(scan[2])
        elif removed := re.search(r"Rows Removed by Filter: (\d+)", line):
            count += int(removed[1])
    return int(count)


@pytest.mark.req("Q-12")
def test_a_week_costs_the_same_among_ninety_days(ledger: Ledger, ann: Operator) -> None:
    fill(ledger, WEEK)
    cost, plans = read_week(ledger, ann)
    with ledger.reading() as connection:
        count = sqlalchemy.select(sqlalchemy.func.count()).where(activity.c.kind == ALL_KINDS)
        assert connection.execute(count).scalar_one() <= MAX_ROWS + 3
    fill(ledger, HOURS_KEPT, WEEK)
    later, plans = read_week(ledger, ann)
    assert cost > 0
    assert later <= 1.2 * cost + 50, "\n\n".join(plans)
    for plan in plans:
        assert not SCAN.search(plan), plan
