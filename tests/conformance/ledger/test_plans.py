"""Rows read by frequent statements: never a whole table, and not more with more history (50,000 jobs, with REDRIVE_FULL=1 a
million).

Most of these are traps that were measured before the ledger was written (research/ledger_proto.md §11).
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.db.compiled import compile_postgres, compile_sqlite
from redrive.ledger.db.tables import CURRENT, dead, job
from redrive.ledger.queries import overview
from redrive.ledger.queries.jobs import _JOB
from redrive.ledger.store.postgres import claim as turn_postgres
from redrive.ledger.store.postgres import settle as settle_postgres
from redrive.ledger.store.postgres import submit as submit_postgres
from redrive.ledger.store.sqlite import claim as claim_sqlite
from redrive.ledger.store.sqlite import settle as settle_sqlite
from redrive.ledger.store.sqlite import submit as submit_sqlite
from redrive.ledger.store.sqlite.queries import earliest_due_sql
from tests.conformance.ledger.world import KIND, claim, keys, new, rows, session

SIZE = 1_000_000 if os.environ.get("REDRIVE_FULL") == "1" else 50_000

# A third each: ended, due, and far in the future (a backlog at priority 0, before due jobs at priority 2).
FILL = """
INSERT INTO redrive_job (kind, key, payload, state, priority, due_at, created_at, ended_at, lease_until)
SELECT 'mail', 'old' || n, '', CASE n % 3 WHEN 0 THEN 2 ELSE 0 END, CASE n % 3 WHEN 1 THEN 2 ELSE 0 END,
       CASE n % 3 WHEN 2 THEN {future} ELSE {past} END, {past}, CASE n % 3 WHEN 0 THEN {past} END, NULL
FROM {numbers}
"""
COUNT = """
INSERT INTO redrive_tally (kind, submitted, ready, done)
SELECT 'mail', count(*), count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 2) FROM redrive_job
"""


def fill(ledger: Ledger, size: int = SIZE) -> None:
    with session(ledger) as held:
        if held.sqlite:
            numbers = f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {size}) SELECT n FROM s)"
            held.raw.execute(FILL.format(numbers=numbers, past=1_000_000, future=10**17))
        else:
            held.raw.execute(
                FILL.format(
                    numbers=f"generate_series(1, {size}) n", past="now() - interval '1 h'", future="now() + interval '9 days'"
                )
            )
        held.raw.execute(COUNT)
        held.raw.execute("ANALYZE")


@pytest.fixture(params=["sqlite", "postgres"])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    url = f"sqlite:///{tmp_path / 'ledger.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_ledger")
    with open_ledger(url, migrate=True) as ledger:
        fill(ledger)
        yield ledger
        assert ledger.imbalance() == []


def plan(ledger: Ledger, text: str) -> str:
    """Return the generic plan of a statement."""
    with session(ledger) as held:
        if held.sqlite:
            names = text.count("?")
            found = held.raw.execute(f"EXPLAIN QUERY PLAN {text}", (None,) * names).fetchall()
            return "\n".join(row[3] for row in found)
        order: list[str] = []

        def place(match: re.Match[str]) -> str:
            if match[1] not in order:
                order.append(match[1])
            return f"${order.index(match[1]) + 1}"

        held.raw.execute("SET plan_cache_mode = force_generic_plan")
        numbered = re.sub(r"%[(](\w+)[)]s", place, text)
        held.raw.execute(f"PREPARE hot AS {numbered}")
        found = held.raw.execute(f"EXPLAIN EXECUTE hot ({', '.join(['NULL'] * len(order))})").fetchall()
        held.raw.execute("DEALLOCATE hot; RESET plan_cache_mode")
        return "\n".join(row[0] for row in found)


HOT_POSTGRES = {
    "submit": submit_postgres.SUBMIT,
    "submit plain": submit_postgres.SUBMIT_PLAIN,
    "known": submit_postgres.KNOWN,
    "turn": turn_postgres.TURN,
    "turn alone": turn_postgres.TURN_ALONE,
    "turn start": turn_postgres.TURN_START,
    "start": turn_postgres.START,
    "renew": turn_postgres.RENEW,
    "settle": settle_postgres.SETTLE,
}
HOT_SQLITE = {
    "submit": submit_sqlite.INSERT_RETURNING,
    "submit many": submit_sqlite.INSERT,
    "known": submit_sqlite.KNOWN,
    "next": claim_sqlite.NEXT_PRIORITY,
    "claim": claim_sqlite.CLAIM,
    "claim one": claim_sqlite.CLAIM_ONE,
    "next due": earliest_due_sql(2),
    "start": claim_sqlite.START,
    "renew": claim_sqlite.RENEW,
    "done": settle_sqlite.SETTLE_DONE,
    "done scattered": settle_sqlite.SETTLE_DONE_IDS,
    "settle": settle_sqlite.SETTLE,
    "returned": settle_sqlite.REPLAY_DIED,
    "replayed": settle_sqlite.REPLAY_DONE,
}
TIMED: dict[str, Any] = {
    "reap": sqlalchemy.select(job.c.id).where(sqlalchemy.text("state = 1"), job.c.lease_until < sqlalchemy.bindparam("x")),
    "prune": sqlalchemy.select(job.c.id).where(sqlalchemy.text("state = 2"), job.c.ended_at < sqlalchemy.bindparam("x")),
    "forget": sqlalchemy.select(job.c.id).where(sqlalchemy.text("state = 5"), job.c.expires_at < sqlalchemy.bindparam("x")),
    "find": _JOB.where(job.c.kind == sqlalchemy.bindparam("x"), job.c.key == sqlalchemy.bindparam("y"), CURRENT),
    "unblock": sqlalchemy.select(dead.c.id).where(
        dead.c.blocked_until <= sqlalchemy.bindparam("x"), sqlalchemy.text("status = 'pending'")
    ),
}


@pytest.mark.req("L-6")
def test_no_statement_reads_a_whole_table(full: Ledger) -> None:
    with session(full) as held:
        on_sqlite = held.sqlite
    for name, text in (HOT_SQLITE if on_sqlite else HOT_POSTGRES).items():
        found = plan(full, text)
        assert not re.search(r"SCAN redrive_(job|dead|attempt)|Seq Scan on redrive_(job|dead|attempt)", found), (
            f"{name}:\n{found}"
        )
        if name not in ("submit", "submit plain", "submit many"):
            assert re.search(r"redrive_job|redrive_dead|PRIMARY KEY", found), f"{name}:\n{found}"
    for name, query in TIMED.items():
        found = plan(full, (compile_sqlite if on_sqlite else compile_postgres)(query))
        assert "redrive_job_" in found or "redrive_dead_" in found, f"{name}:\n{found}"
        assert not re.search(r"SCAN redrive|Seq Scan on redrive", found), f"{name}:\n{found}"


@pytest.mark.req("L-6")
def test_settle_uses_the_primary_key(full: Ledger) -> None:
    """Traps 1 and 3: with `state = 1` a generic plan scans the index of leases once for each row of the batch."""
    with session(full) as held:
        on_sqlite = held.sqlite
    names = ("done", "done scattered", "settle", "start") if on_sqlite else ("turn", "turn start", "settle")
    for text in ((HOT_SQLITE if on_sqlite else HOT_POSTGRES)[name] for name in names):
        found = plan(full, text)
        assert "redrive_job_leased" not in found
        assert ("PRIMARY KEY" if on_sqlite else "redrive_job_pkey") in found


def cost(ledger: Ledger, **options: Any) -> tuple[set[str], int]:
    """Return the leases of a claim of 100, and its cost: steps of SQLite's virtual machine, or pages of Postgres."""
    with session(ledger) as held:
        on_sqlite = held.sqlite
        steps = [0]
        if on_sqlite:

            def step() -> int:
                steps[0] += 1
                return 0

            held.raw.set_progress_handler(step, 1)
    if on_sqlite:
        leases = claim(ledger, 100, **options)
        with session(ledger) as held:
            held.raw.set_progress_handler(None, 1)
        return keys(leases), steps[0]
    before = _pages(ledger)
    leases = claim(ledger, 100, **options)
    return keys(leases), _pages(ledger) - before


def _pages(ledger: Ledger) -> int:
    with session(ledger) as held:
        held.raw.execute("SELECT pg_stat_force_next_flush()")
        held.raw.execute("SELECT 1")
        found = held.raw.execute(
            "SELECT idx_blks_hit + idx_blks_read + heap_blks_hit + heap_blks_read FROM pg_statio_all_tables"
            " WHERE relname = 'redrive_job'"
        ).fetchone()
        return int(found[0])


@pytest.mark.req("L-6")
def test_a_claim_costs_the_same_with_fifty_times_the_jobs(full: Ledger, tmp_path: Path) -> None:
    """Trap 4: a third of the jobs is a future backlog at priority 0, before due jobs at priority 2."""
    claimed, much = cost(full)
    assert len(claimed) == 100
    with open_ledger("sqlite://") as small:
        fill(small, SIZE // 50)
        with session(full) as held:
            on_sqlite = held.sqlite
        if on_sqlite:
            _, little = cost(small)
            assert much < 1.5 * little
        else:
            assert much < 2_000  # pages, of about 4,000 for 50,000 jobs and their indexes


def test_a_claim_on_postgres_does_not_read_claimed_rows_again(on_postgres: Ledger) -> None:
    """Index entries of claimed jobs stay at the front until a vacuum, where every claim begins."""
    with session(on_postgres) as held:
        held.raw.execute("ALTER TABLE redrive_job SET (autovacuum_enabled = off)")
    on_postgres.submit_many(new(*(str(number) for number in range(3000))))
    settled: list[Any] = []
    costs = []
    for _ in range(28):
        before = _pages(on_postgres)
        turn = on_postgres.turn(settled, {KIND: 100}, worker="w")
        costs.append(_pages(on_postgres) - before)
        settled = [lease.done() for lease in turn.leases]
        assert len(settled) == 100
    assert max(costs[-5:]) < 1.5 * max(costs[1:6])


def test_retries_are_counted_without_reading_the_jobs(on_postgres: Ledger) -> None:
    on_postgres.submit_many(new(*(f"k{each}" for each in range(2_000))))
    with session(on_postgres) as held:
        held.raw.execute("UPDATE redrive_job SET attempts = 1")
        held.raw.execute("VACUUM ANALYZE redrive_job")
        query = overview._QUEUES._postgres.bindparams(kinds=[KIND], most=1_001, tried=1_001)
        explain = sqlalchemy.text(f"EXPLAIN (ANALYZE, TIMING OFF) {query.text}").bindparams(kinds=[KIND], most=1_001, tried=1_001)
        plan = "\n".join(row[0] for row in held.core.execute(explain))
    assert re.search("Index Only Scan using redrive_job_tried .*rows=1001", plan), plan


def test_the_limit_holds_under_any_plan(on_postgres: Ledger) -> None:
    """Trap 5: `IN (SELECT … LIMIT 5 … SKIP LOCKED)` returned 2,000 rows under a nested loop."""
    on_postgres.submit_many(new(*(str(number) for number in range(2000))))
    with session(on_postgres) as held:
        for setting in ("hashjoin", "mergejoin", "material", "hashagg", "bitmapscan"):
            held.raw.execute(f"SET enable_{setting} = off")
    assert len(claim(on_postgres, 5)) == 5
    assert len(on_postgres.claim({KIND: 50, "x": 5}, worker="w", total=7)) == 7


def test_conditions_of_partial_indexes_are_literals() -> None:
    """Trap 6: under a generic plan `state = $1` cannot use an index with `state = 0`."""
    for text in (*HOT_POSTGRES.values(), *HOT_SQLITE.values()):
        assert not re.search(r"(WHERE|AND) [\w.]*state (\+ 0 )?= (%|\?|\$)", text)
    assert "redrive_job.state = 0" in HOT_POSTGRES["turn"]
    assert "redrive_job.state + 0 = 1" in HOT_POSTGRES["turn"]
    assert "array((" in HOT_POSTGRES["turn"]


def test_duplicates_cost_only_ids(on_postgres: Ledger) -> None:
    """Trap 12."""
    on_postgres.submit_many(new("a"))
    for _ in range(3):
        on_postgres.submit_many(new("a", "a"))
    assert on_postgres.submit(*new("b")).id > 2
    assert on_postgres.counts()[KIND].submitted == 2


def test_sqlite_transactions_begin_immediately(on_sqlite: Ledger) -> None:
    """Trap 9: a transaction that reads first fails at its first write if another transaction wrote in between."""
    seen: list[str] = []
    with session(on_sqlite) as held:
        held.raw.set_trace_callback(seen.append)
    on_sqlite.submit_many(new("a", "b"))
    lease, other = claim(on_sqlite)
    on_sqlite.renew([lease])
    on_sqlite.start([lease])
    on_sqlite.settle(lease.done())
    on_sqlite.settle(other.dead("x"))
    on_sqlite.replay([1], actor="a", because="b")
    on_sqlite.reap()
    on_sqlite.prune(0)
    on_sqlite.maintenance.heartbeat("w")
    begun = [text for text in seen if text.startswith("BEGIN")]
    assert begun
    assert set(begun) == {"BEGIN IMMEDIATE"}
    writes = [text for text in seen if re.match("INSERT|UPDATE|DELETE", text)]
    assert writes
    depth = 0
    for text in seen:
        depth += text.startswith("BEGIN") - text.startswith(("COMMIT", "ROLLBACK"))
        if re.match("INSERT|UPDATE|DELETE", text):
            assert depth == 1, text


def test_one_statement_for_a_turn_on_postgres(on_postgres: Ledger) -> None:
    """Trap 10: a separate transaction for each statement costs more than the statement."""
    on_postgres.submit_many(new(*"abcdef"))
    seen: list[str] = []

    class Watched:
        def __init__(self, real: Any) -> None:
            self.real = real

        def execute(self, text: str, *rest: Any) -> Any:
            seen.append(text)
            return self.real.execute(text, *rest)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

    for pool in (on_postgres.connections.write, on_postgres.connections.group_commit):
        with pool.use() as held:
            held.run = Watched(held.run)
    leases = claim(on_postgres, 3)
    on_postgres.turn([lease.done() for lease in leases], {KIND: 3}, worker="w")
    on_postgres.submit_many([NewJob(KIND, "x"), NewJob(KIND, "y")])
    assert seen == [HOT_POSTGRES["turn"], HOT_POSTGRES["turn"], HOT_POSTGRES["submit plain"]]


def test_sqlite_timestamps_have_microseconds(on_sqlite: Ledger) -> None:
    """Trap 13: SQLite before 3.42 has no clock below the second, and no statement of ours uses one."""
    assert sqlite3.sqlite_version_info >= (3, 35)
    assert not any(re.search(r"unixepoch|datetime\(|strftime|CURRENT_TIMESTAMP", text) for text in HOT_SQLITE.values())
    on_sqlite.submit(*new("a"))
    assert rows(on_sqlite, "SELECT created_at % 1000000 FROM redrive_job") != [(0,)]
