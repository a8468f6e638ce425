"""Piles of jobs that are in the way: ended, due, or due far in the future; and how long a claim of 100 takes beside them."""

import time
from statistics import median
from typing import Any

from benchmarks.durable.drain import KIND, analyze

BATCH = 100
PILES = ("ended", "due", "future")
_POSTGRES = """
INSERT INTO redrive_job (kind, key, state, created_at, due_at, ended_at, payload)
SELECT '{kind}', '{pile}-' || n, {state}, now(), now() + {due} * interval '1 second', {ended}, '\\x7b7d'::bytea
FROM generate_series(1, {jobs}) n
"""
_SQLITE = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {jobs})
INSERT INTO redrive_job (kind, key, state, created_at, due_at, ended_at, payload)
SELECT '{kind}', '{pile}-' || n, {state}, {now}, {now} + {due} * 1000000, {ended}, x'7b7d' FROM numbers
"""


def pile_up(ledger: Any, pile: str, jobs: int) -> None:
    """Rows as submits, claims and settles would have left them, without the hour that these would take."""
    ended = pile == "ended"
    text = _POSTGRES if ledger.url.startswith("postgres") else _SQLITE
    now = time.time_ns() // 1000
    moment = "now()" if text is _POSTGRES else str(now)
    with ledger.begin() as connection:
        connection.exec_driver_sql(
            text.format(
                kind=KIND,
                pile=pile,
                state=2 if ended else 0,
                due=10**7 if pile == "future" else -60,
                ended=moment if ended else "NULL",
                now=now,
                jobs=jobs,
            )
        )
    analyze(ledger)


def claims(ledger: Any, times: int) -> float:
    """Milliseconds of a claim of 100 with the settle of the 100 before, the median of some."""
    from redrive.ledger import NewJob

    ready = times * BATCH
    stamp = time.time_ns()
    for at in range(0, ready, BATCH):
        ledger.submit_many([NewJob(KIND, f"new-{stamp}-{at + n}", b"{}") for n in range(BATCH)])
    analyze(ledger)
    settlements: list[Any] = []
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        turn = ledger.turn(settlements, {KIND: BATCH}, worker="bench")
        taken.append(time.perf_counter() - began)
        settlements = [lease.done() for lease in turn.leases]
        if len(turn.leases) != BATCH:
            raise RuntimeError(f"a claim brought {len(turn.leases)} jobs, not {BATCH}")
    ledger.settle(settlements)
    return median(taken) * 1000
