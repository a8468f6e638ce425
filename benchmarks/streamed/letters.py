"""Milliseconds to list a page of dead letters, and to group all of them: python -m benchmarks.streamed.letters URL LETTERS"""

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.apart import tell
from redrive.ops import DeadLetterFilter

HANDLERS, ERRORS = 5, 40
_POSTGRES = """
INSERT INTO redrive_job (kind, key, state, attempts, fence, created_at, due_at, started_at, ended_at, payload, reason, error)
SELECT 'handler' || mod(n, {handlers}), 'event:bench:' || n || ':h:v1', 3, 5, 5, now(), now(), now(), now(), '\\x7b7d'::bytea,
  'attempts', 'Timeout: no answer from host ' || mod(n, {errors}) FROM generate_series(1, {letters}) n;
INSERT INTO redrive_dead (kind, key, job_id, status, reason, error, signature, attempts, payload, source, source_id, created_at,
  updated_at, last_attempt_at)
SELECT kind, key, id, 'pending', reason, error, error, attempts, payload, 'bench', id::text, now(), now(), now() FROM redrive_job;
ANALYZE redrive_job; ANALYZE redrive_dead
"""
_SQLITE = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {letters})
INSERT INTO redrive_job (kind, key, state, attempts, fence, created_at, due_at, started_at, ended_at, payload, reason, error)
SELECT 'handler' || n % {handlers}, 'event:bench:' || n || ':h:v1', 3, 5, 5, {now}, {now}, {now}, {now}, x'7b7d', 'attempts',
  'Timeout: no answer from host ' || n % {errors} FROM numbers;
INSERT INTO redrive_dead (kind, key, job_id, status, reason, error, signature, attempts, payload, source, source_id, created_at,
  updated_at, last_attempt_at)
SELECT kind, key, id, 'pending', reason, error, error, attempts, payload, 'bench', id, {now}, {now}, {now} FROM redrive_job
"""


def pile_up(ledger: Any, letters: int) -> None:
    """Rows as failures would have left them, without the hours that these would take; then counted."""
    text = _POSTGRES if ledger.url.startswith("postgres") else _SQLITE
    with ledger.begin() as connection:
        for each in text.format(letters=letters, handlers=HANDLERS, errors=ERRORS, now=time.time_ns() // 1000).split(";"):
            connection.exec_driver_sql(each)
    ledger.recount(actor="bench", because="rows were written by hand")
    ledger.maintenance.fold_counters()


def taken(act: Callable[[], object], times: int = 15) -> float:
    """Milliseconds, the median."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        found.append((time.perf_counter() - began) * 1000)
    return median(found)


def measured(url: str, letters: str) -> dict[str, float]:
    """Milliseconds, by what is asked for."""
    from redrive import App
    from redrive.ops import Operator

    with App(url, migrate=True) as app:
        pile_up(app.ledger, int(letters))
        ops = Operator(app, actor="bench")
        assert ops.overview.failures()
        return {
            "list": taken(lambda: ops.dead_letters.find(DeadLetterFilter(limit=50))),
            "one handler": taken(lambda: ops.dead_letters.find(DeadLetterFilter(kind="handler3", limit=50))),
            "groups": taken(ops.overview.failures),
        }


if __name__ == "__main__":
    tell(measured(*sys.argv[1:]))
