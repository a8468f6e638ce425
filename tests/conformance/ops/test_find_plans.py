"""What a search reads: never a whole table, for every word (50,000 jobs; with REDRIVE_FULL=1 a million)."""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy

from redrive.ledger import Ledger
from redrive.ledger.filters import JobFilter
from redrive.ledger.queries import job_search
from tests.conformance.ledger.world import session

SIZE = 1_000_000 if os.environ.get("REDRIVE_FULL") == "1" else 50_000
JOBS = """
INSERT INTO redrive_job (kind, key, payload, state, due_at, created_at, ended_at, lease_until, signature, error, worker)
SELECT CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'mail' END, 'shop:u' || (n % 5000) || ':o-' || n || ':r:v1', '',
       CASE n % 3 WHEN 0 THEN 2 WHEN 1 THEN 0 ELSE 3 END, {now}, {created}, CASE n % 3 WHEN 1 THEN NULL ELSE {now} END, NULL,
       CASE n % 3 WHEN 2 THEN 'E: ' || (n % 100) END, CASE n % 3 WHEN 2 THEN 'E: text ' || (n % 100) END, 'w' || (n % 500)
FROM {numbers}
"""
TAGS = "INSERT INTO redrive_tag (name, value, job_id) SELECT 'order_id', 'o-' || key, id FROM redrive_job"
IDS = "INSERT INTO redrive_tag (name, value, job_id) SELECT '@id', 'r-' || id, id FROM redrive_job"
ATTEMPTS = """INSERT INTO redrive_attempt (job_id, fence, number, outcome, worker, ended_at)
SELECT id, 1, 1, 'failed', worker, created_at FROM redrive_job WHERE state = 3"""
LETTERS = """INSERT INTO redrive_dead (kind, key, job_id, reason, error, signature, payload, created_at, updated_at)
SELECT kind, key, id, 'attempts', error, signature, '', created_at, created_at FROM redrive_job WHERE state = 3"""
FAILURES = """INSERT INTO redrive_failure (kind, signature, first_at, last_at, error)
SELECT kind, signature, min(created_at), max(created_at), max(error) FROM redrive_job WHERE state = 3 GROUP BY kind, signature"""
TALLY = """INSERT INTO redrive_tally (kind, submitted, ready, done, dead)
SELECT kind, count(*), count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 3)
FROM redrive_job GROUP BY kind"""
NOW = datetime.now(timezone.utc)


@pytest.fixture
def full(ledger: Ledger) -> Ledger:
    with session(ledger) as held:
        if held.sqlite:
            micros = int(NOW.timestamp() * 1_000_000)
            numbers = f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {SIZE}) SELECT n FROM s)"
            jobs = JOBS.format(numbers=numbers, now=micros, created=f"{micros} - ({SIZE} - n) * 1000000")
        else:
            created = f"now() - ({SIZE} - n) * interval '1 second'"
            jobs = JOBS.format(numbers=f"generate_series(1, {SIZE}) n", now="now()", created=created)
        for statement in (jobs, TAGS, IDS, ATTEMPTS, LETTERS, FAILURES, TALLY, "ANALYZE"):
            held.raw.execute(statement)
    return ledger


FORMS: dict[str, JobFilter] = {
    "id": JobFilter(ids=(17,)),
    "key": JobFilter(key="shop:u17:o-17:r:v1"),
    "key prefix": JobFilter(key_prefix="shop:u17:"),
    "user": JobFilter(user="u17"),
    "correlation id": JobFilter(correlation_id="r-17"),
    "tag": JobFilter(tags={"order_id": "o-shop:u17:o-17:r:v1"}),
    "job type": JobFilter(kind="rare"),
    "frequent job type": JobFilter(kind="mail"),
    "job type and state": JobFilter(kind="rare", state="done"),
    "error": JobFilter(error="text 98"),
    "no such error": JobFilter(error="no such error"),
    "worker": JobFilter(worker="w17"),
    "since": JobFilter(since=NOW - timedelta(minutes=1)),
    "until": JobFilter(until=NOW - timedelta(hours=3)),
    "text": JobFilter(text="shop:u17:o-17:r:v1"),
    "unknown text": JobFilter(text="no such text"),
    **{f"state {state}": JobFilter(state=state) for state in ("queued", "running", "retry_wait", "dlq", "done", "cancelled")},
}
SCAN = re.compile(
    r"SCAN redrive_(?:job|tag|attempt|dead)\b(?! USING (?:COVERING )?INDEX redrive_job_(?:done|leased|cancelled))"
    r"|Seq Scan on redrive_(?:job|tag|attempt|dead)\b"
)


def statements(ledger: Ledger, wanted: JobFilter) -> tuple[int, list[str]]:
    """The number of jobs that are found, and the plan of each statement that ran."""
    ran: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        ran.append((statement, parameters))

    with ledger.reading() as connection:
        sqlalchemy.event.listen(connection, "before_cursor_execute", note)
        page = job_search.find(connection, wanted, limit=50)
        sqlalchemy.event.remove(connection, "before_cursor_execute", note)
        explain = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
        plans = []
        for statement, parameters in ran:
            rows = connection.exec_driver_sql(f"{explain} {statement}", parameters).all()
            plans.append(f"{statement}\n{parameters}\n" + "\n".join(str(row[-1]) for row in rows))
    return len(page.jobs), plans


@pytest.mark.req("Q-1")
def test_every_search_word_uses_an_index(full: Ledger) -> None:
    for name, wanted in FORMS.items():
        count, plans = statements(full, wanted)
        expects_none = name in ("no such error", "unknown text", "state running", "state retry_wait", "state cancelled")
        assert (count == 0) is expects_none, name
        assert len(plans) <= 120, name
        for plan in plans:
            assert not SCAN.search(plan), f"{name}:\n{plan}"
