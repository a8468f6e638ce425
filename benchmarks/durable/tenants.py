"""A claim of 100 among 1,000,000 queued jobs: of one tenant, and of 1,000 tenants that share fairly."""

import time
from statistics import median
from typing import Any

from benchmarks.durable.drain import KIND, analyze
from benchmarks.durable.pile import BATCH

TENANTS = 1000
_POSTGRES = """
INSERT INTO redrive_job (kind, key, created_at, due_at, payload, tenant)
SELECT '{kind}', '{stamp}-' || n, now(), now() - interval '60 seconds' + n * interval '1 microsecond', '\\x7b7d'::bytea,
't' || n %% {tenants} FROM generate_series(1, {jobs}) n
"""
_SQLITE = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {jobs})
INSERT INTO redrive_job (kind, key, created_at, due_at, payload, tenant)
SELECT '{kind}', '{stamp}-' || n, {now}, {now} - 60000000 + n, x'7b7d', 't' || (n % {tenants}) FROM numbers
"""


def pile_up(ledger: Any, tenants: int, jobs: int) -> None:
    """Due jobs of so many tenants, in turns."""
    text = _POSTGRES if ledger.url.startswith("postgres") else _SQLITE
    with ledger.begin() as connection:
        connection.exec_driver_sql(
            text.format(kind=KIND, tenants=tenants, jobs=jobs, stamp=time.time_ns(), now=time.time_ns() // 1000)
        )
    analyze(ledger)


def claims(ledger: Any, tenants: int, times: int) -> float:
    """Milliseconds of a fair claim of 100 with the settle of the 100 before, the median of some."""
    pile_up(ledger, tenants, times * BATCH)
    settlements: list[Any] = []
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        turn = ledger.turn(settlements, {KIND: BATCH}, worker="bench", fair=True)
        taken.append(time.perf_counter() - began)
        settlements = [lease.done() for lease in turn.leases]
        if len(turn.leases) != BATCH:
            raise RuntimeError(f"a claim brought {len(turn.leases)} jobs, not {BATCH}")
    ledger.settle(settlements)
    return median(taken) * 1000
