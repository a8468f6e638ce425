"""Time of a claim of 100 jobs in a table with many ended, due or future jobs."""

import time
from statistics import median
from typing import Any

from benchmarks.ledger_suite.drain import KIND, analyze

BATCH = 100
BACKLOGS = ("ended", "due", "future")
_POSTGRES = """
INSERT INTO redrive_job (kind, key, state, created_at, due_at, ended_at, payload)
SELECT '{kind}', '{backlog}-' || n, {state}, now(), now() + {due} * interval '1 second', {ended}, '\\x7b7d'::bytea
FROM generate_series(1, {jobs}) n
"""
_SQLITE = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {jobs})
INSERT INTO redrive_job (kind, key, state, created_at, due_at, ended_at, payload)
SELECT '{kind}', '{backlog}-' || n, {state}, {now}, {now} + {due} * 1000000, {ended}, x'7b7d' FROM numbers
"""


def insert_jobs(ledger: Any, backlog: str, jobs: int) -> None:
    """Insert rows directly, because submits, claims and settles would take an hour."""
    ended = backlog == "ended"
    text = _POSTGRES if ledger.url.startswith("postgres") else _SQLITE
    now = time.time_ns() // 1000
    ended_at = "now()" if text is _POSTGRES else str(now)
    with ledger.begin() as connection:
        connection.exec_driver_sql(
            text.format(
                kind=KIND,
                backlog=backlog,
                state=2 if ended else 0,
                due=10**7 if backlog == "future" else -60,
                ended=ended_at if ended else "NULL",
                now=now,
                jobs=jobs,
            )
        )
    analyze(ledger)


def measure_claims(ledger: Any, times: int) -> float:
    """Return the median milliseconds of a claim of 100 that also settles the previous 100."""
    from redrive.ledger import NewJob

    ready = times * BATCH
    stamp = time.time_ns()
    for at in range(0, ready, BATCH):
        ledger.submit_many([NewJob(KIND, f"new-{stamp}-{at + n}", b"{}") for n in range(BATCH)])
    analyze(ledger)
    return time_claims(ledger, {KIND: BATCH}, times)


def time_claims(ledger: Any, kinds: dict[str, int], times: int, **options: Any) -> float:
    """Return the median milliseconds of a claim of 100 that also settles the previous 100, with options of `turn`."""
    settlements: list[Any] = []
    times_ms = []
    for _ in range(times):
        began = time.perf_counter()
        turn = ledger.turn(settlements, kinds, worker="bench", **options)
        times_ms.append((time.perf_counter() - began) * 1000)
        settlements = [lease.done() for lease in turn.leases]
        if len(turn.leases) != BATCH:
            raise RuntimeError(f"a claim returned {len(turn.leases)} jobs instead of {BATCH}")
    ledger.settle(settlements)
    return median(times_ms)
