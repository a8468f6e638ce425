"""Milliseconds to list and to group dead letters.

Run it with `python -m benchmarks.messages_suite.dead_letters URL DEAD_LETTERS`.
"""

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.isolation import print_result
from redrive.ops import DeadLetterFilter

HANDLERS, ERRORS = 5, 40
_POSTGRES = """
INSERT INTO redrive_job (kind, key, state, attempts, fence, created_at, due_at, started_at, ended_at, payload, reason, error)
SELECT 'handler' || mod(n, {handlers}), 'event:bench:' || n || ':h:v1', 3, 5, 5, now(), now(), now(), now(), '\\x7b7d'::bytea,
  'attempts', 'Timeout: no answer from host ' || mod(n, {errors}) FROM generate_series(1, {count}) n;
INSERT INTO redrive_dead (kind, key, job_id, status, reason, error, signature, attempts, payload, source, source_id, created_at,
  updated_at, last_attempt_at)
SELECT kind, key, id, 'pending', reason, error, error, attempts, payload, 'bench', id::text, now(), now(), now() FROM redrive_job;
ANALYZE redrive_job; ANALYZE redrive_dead
"""
_SQLITE = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
INSERT INTO redrive_job (kind, key, state, attempts, fence, created_at, due_at, started_at, ended_at, payload, reason, error)
SELECT 'handler' || n % {handlers}, 'event:bench:' || n || ':h:v1', 3, 5, 5, {now}, {now}, {now}, {now}, x'7b7d', 'attempts',
  'Timeout: no answer from host ' || n % {errors} FROM numbers;
INSERT INTO redrive_dead (kind, key, job_id, status, reason, error, signature, attempts, payload, source, source_id, created_at,
  updated_at, last_attempt_at)
SELECT kind, key, id, 'pending', reason, error, error, attempts, payload, 'bench', id, {now}, {now}, {now} FROM redrive_job
"""


def insert_dead_letters(ledger: Any, count: int) -> None:
    """Insert rows directly, because real failures would take hours. Then update the counters."""
    text = _POSTGRES if ledger.url.startswith("postgres") else _SQLITE
    with ledger.begin() as connection:
        for statement in text.format(count=count, handlers=HANDLERS, errors=ERRORS, now=time.time_ns() // 1000).split(";"):
            connection.exec_driver_sql(statement)
    ledger.recount(actor="bench", because="rows were written by hand")
    ledger.maintenance.fold_counters()


def measure_median(act: Callable[[], object], times: int = 15) -> float:
    """Return the median duration in milliseconds."""
    times_ms = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        times_ms.append((time.perf_counter() - began) * 1000)
    return median(times_ms)


def measure(url: str, dead_letters: str) -> dict[str, float]:
    """Return milliseconds by query."""
    from redrive import App
    from redrive.ops import Operator

    with App(url, migrate=True) as app:
        insert_dead_letters(app.ledger, int(dead_letters))
        ops = Operator(app, actor="bench")
        assert ops.overview.failures()
        return {
            "list": measure_median(lambda: ops.dead_letters.find(DeadLetterFilter(limit=50))),
            "one handler": measure_median(lambda: ops.dead_letters.find(DeadLetterFilter(kind="handler3", limit=50))),
            "groups": measure_median(ops.overview.failures),
        }


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
