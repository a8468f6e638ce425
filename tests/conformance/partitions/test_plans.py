"""Query plans of partitions: no statement reads a whole table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
import sqlalchemy
from sqlalchemy import event

from redrive.ledger import Ledger
from redrive.partitions.model import PartitionFilter
from redrive.partitions.store import sweeps
from redrive.partitions.store.overview import find_failing, leased_partitions
from tests.conformance.partitions.world import AUDIT, DAY, World

SIZE = 300_000 if os.environ.get("REDRIVE_FULL") == "1" else 20_000

FILL = """
INSERT INTO redrive_partition (source, query_name, logical_date, customer_id, status, shade, current_run_id, updated_at)
SELECT 'crm', 'orders', {day}, 'k' || (n % 100), 'success', 0, 'r' || n, {now} FROM {numbers}
"""
ROLL = """
INSERT INTO redrive_partition_rollup (source, query_name, logical_date, shade, n)
SELECT source, query_name, logical_date, shade, count(*) FROM redrive_partition GROUP BY 1, 2, 3, 4
"""
BIG = r"redrive_partition(_run|_verdict|_work)?\b"
# A scan of a whole table, of a whole dataset, or of all ids, on SQLite and on Postgres.
WHOLE = (
    r"SCAN (redrive_partition|redrive_partition_run|redrive_partition_verdict|p)\b"
    r"(?! USING (COVERING )?INDEX redrive_partition_(trouble|failed))"
    r"|redrive_partition_key \((source=\?|source=\? AND query_name=\?)\)|PRIMARY KEY \(rowid>\?\)"
    r"|Seq Scan on redrive_partition(_run|_verdict)?\b"
)


@pytest.fixture
def full(ledger: Ledger) -> Iterator[World]:
    world = World(ledger)
    with ledger.connections.write.use() as session:
        if session.sqlite:
            numbers = f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {SIZE}) SELECT n FROM s)"
            filled = FILL.format(numbers=numbers, day="date('2020-01-01', '+' || (n / 100) || ' days')", now=1)
        else:
            filled = FILL.format(numbers=f"generate_series(1, {SIZE}) n", day="DATE '2020-01-01' + (n / 100)::int", now="now()")
        session.raw.execute(filled)
        session.raw.execute(ROLL)
        session.raw.execute("ANALYZE")
    yield world
    assert world.queries.imbalance() == []


def watched(world: World) -> list[tuple[str, object]]:
    """Collect every statement of SQLAlchemy from now on."""
    seen: list[tuple[str, object]] = []
    engine = world.ledger.connections._engine

    @event.listens_for(engine, "before_cursor_execute")
    def _note(_c: object, _u: object, statement: str, parameters: object, _x: object, many: bool) -> None:
        rows = parameters if isinstance(parameters, list) else [parameters]
        seen.append((statement, rows[0] if many and rows else parameters))

    return seen


@pytest.mark.req("P-14")
def test_no_operation_reads_a_whole_table(full: World) -> None:
    seen = watched(full)
    full.backfill(20, days=2)
    leases = full.claim(30)
    full.accept(*leases[:10])
    full.reject(*leases[10:20])
    full.give_back(leases[20], "not_ready")
    full.control.renew(leases[21:])
    full.control.maintain()
    key = leases[10].partition
    full.queries.get(key)
    full.queries.history(key)
    full.queries.explain(key, full.limits)
    full.queries.days("crm", "orders", "k1", "2020-01-01", "2020-12-31")
    full.queries.counts()
    full.queries.calendar("2020-01-01", "2020-12-31")
    full.queries.reasons()
    full.queries.find(PartitionFilter(source="crm", query_name="orders", shades=["failed"]))
    full.queries.newest(PartitionFilter(source="crm", query_name="orders", shades=["failed"]))
    with full.ledger.reading() as connection:
        assert find_failing(connection, dataset=None, since=None, each=5, unjudged=True)
        find_failing(connection, dataset=("crm", "orders"), since=full.ledger.now(), each=5)
        assert leased_partitions(connection, 5)
    full.queries.find(PartitionFilter(source="crm", query_name="orders", customers=["k1"]))
    full.queries.find(PartitionFilter(source="crm", query_name="orders", since=DAY, until=DAY))
    full.retry(key)
    full.control.mark_terminal([leases[11].partition_id], **AUDIT)
    full.control.clear_terminal([leases[11].partition_id], **AUDIT)
    assert len(seen) > 50
    with full.ledger.connections.write.use() as session:
        for statement, parameters in {text: (text, given) for text, given in seen}.values():
            if not re.match(r"\s*(SELECT|UPDATE|DELETE|WITH)", statement) or not re.search(BIG, statement):
                continue
            found = _plan(session, statement, parameters)
            assert not re.search(WHOLE, found), f"{statement}\n{found}"


def _plan(session: object, statement: str, parameters: object) -> str:
    raw = session.raw  # type: ignore[attr-defined]
    if session.sqlite:  # type: ignore[attr-defined]
        return "\n".join(row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall())
    return "\n".join(row[0] for row in raw.execute(f"EXPLAIN {statement}", parameters).fetchall())


SWEPT = """
INSERT INTO redrive_sweep (act, state, actor, because, total, next_at, created_at, updated_at)
SELECT 'fresh', 'done', 'a', 'b', 0, {now}, {now}, {now} FROM {numbers}
"""


def test_maintenance_does_not_read_ended_sweeps(full: World) -> None:
    with full.ledger.connections.write.use() as session:
        each = "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 5000) SELECT n FROM s)"
        numbers, now = (each, 1) if session.sqlite else ("generate_series(1, 5000) n", "now()")
        session.raw.execute(SWEPT.format(numbers=numbers, now=now))
        session.raw.execute("ANALYZE redrive_sweep")
    sweep = full.backfill(5)
    leases = full.claim()
    full.control.move(sweep, "cancel", **AUDIT)
    seen = watched(full)
    full.claim()
    full.control.maintain()
    assert not [text for text, _ in seen if re.search("UPDATE|INSERT|DELETE", text)], "what is under way is waited for"
    full.accept(*leases)
    full.control.maintain()
    full.queries.progress(sweep)
    with full.ledger.connections.read.use() as session:
        assert sweeps.load_cancelled(session.core) == [], "nothing is left of it"
    swept = [(text, given) for text, given in seen if "redrive_sweep.state = '" in text]
    assert swept
    with full.ledger.connections.write.use() as session:
        for statement, parameters in swept:
            assert re.search("redrive_sweep_(running|cancelled)", _plan(session, statement, parameters)), statement


@pytest.mark.req("P-14")
def test_counts_and_calendar_read_only_the_rollup(full: World) -> None:
    seen = watched(full)
    counts = full.queries.counts(source="crm")
    cells = full.queries.calendar("2020-01-01", "2020-12-31", query_name="orders")
    assert sum(counts["crm", "orders"].values()) == SIZE
    assert len(cells) == min(366, SIZE // 100 + 1)
    assert all("redrive_partition_rollup" in text and not re.search(r"redrive_partition\b", text) for text, _ in seen)
    assert isinstance(sqlalchemy.__version__, str)


def test_idle_maintenance_takes_no_lock(full: World) -> None:
    full.control.maintain()
    seen = watched(full)
    assert full.claim() == []
    assert not [text for text, _ in seen if re.match("UPDATE|INSERT|DELETE", text)]
    assert len(seen) <= 3
