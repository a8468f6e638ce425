"""Time of a fair claim of 100 among 1,000,000 queued jobs, with 1 and with 1,000 tenants."""

import time
from typing import Any

from benchmarks.ledger_suite.backlog import BATCH, time_claims
from benchmarks.ledger_suite.drain import KIND, analyze

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


def insert_jobs(ledger: Any, tenants: int, jobs: int) -> None:
    """Insert due jobs that alternate between the tenants."""
    text = _POSTGRES if ledger.url.startswith("postgres") else _SQLITE
    with ledger.begin() as connection:
        connection.exec_driver_sql(
            text.format(kind=KIND, tenants=tenants, jobs=jobs, stamp=time.time_ns(), now=time.time_ns() // 1000)
        )
    analyze(ledger)


def measure_claims(ledger: Any, tenants: int, times: int) -> float:
    """Return the median milliseconds of a fair claim of 100 that also settles the previous 100."""
    insert_jobs(ledger, tenants, times * BATCH)
    return time_claims(ledger, {KIND: BATCH}, times, fair=True)
