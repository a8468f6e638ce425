"""Fill a ledger with partitions, with a few SQL statements. Most are accepted, some failed, some are due."""

from datetime import date

from redrive.ledger import Ledger

SINCE = date(2023, 1, 1)
CUSTOMERS = 1000
"""Customers per day."""

_PARTITIONS = """
INSERT INTO redrive_partition (source, query_name, logical_date, customer_id, status, shade, current_run_id, current_raw_id,
    current_attempt_no, attempt_count, dispatch_count, last_verdict, reason, updated_at)
SELECT 'crm', 'q' || (n / {days} % {queries}), {day}, 'c' || (n % 1000),
    CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'success' END, CASE WHEN n % 10 = 0 THEN 3 ELSE 0 END,
    CASE WHEN n % 10 <> 0 THEN 'r' || n END, CASE WHEN n % 10 <> 0 THEN 'r' || n END, 1, 1, 1,
    CASE WHEN n % 10 = 0 THEN 'rejected' ELSE 'accepted' END, CASE WHEN n % 10 = 0 THEN 'row_count' END, {now}
FROM {numbers}
"""
_ROLLUP = """
INSERT INTO redrive_partition_rollup (source, query_name, logical_date, shade, n)
SELECT source, query_name, logical_date, shade, count(*) FROM redrive_partition GROUP BY 1, 2, 3, 4
"""
_WORK = """
INSERT INTO redrive_partition_work (partition_id, source, query_name, lane, sweep_id, due_at, queued_at, kind, seed)
SELECT id, source, query_name, 1, 0, {due}, {now}, 'retry', 0.5 FROM redrive_partition WHERE shade = 3
"""


def fill(ledger: Ledger, count: int) -> int:
    """Insert partitions. One in ten has failed, and half of those are due.

    Returns:
        The number of queries, at most ten.
    """
    queries = max(1, min(10, count // 100_000))
    with ledger.connections.write.use() as session:
        run = session.raw.execute
        if session.sqlite:
            numbers = f"(WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {count - 1}) SELECT n FROM s)"
            day = f"date('2023-01-01', '+' || (n / {CUSTOMERS * queries}) || ' days')"
            run("PRAGMA synchronous=OFF")
            texts = {"now": 1_700_000_000_000_000, "due": "CASE WHEN id % 100 < 50 THEN 1 ELSE 99999999999999999 END"}
        else:
            numbers = f"generate_series(0, {count - 1}) n"
            day = f"DATE '2023-01-01' + (n / {CUSTOMERS * queries})::int"
            texts = {
                "now": "now()",
                "due": "CASE WHEN id % 100 < 50 THEN now() - interval '1 h' ELSE now() + interval '9 days' END",
            }
        run(_PARTITIONS.format(numbers=numbers, day=day, days=CUSTOMERS, queries=queries, **texts))
        run(_ROLLUP)
        run(_WORK.format(**texts))
        run("ANALYZE")
        if session.sqlite:
            run("PRAGMA synchronous=FULL")
            run("PRAGMA wal_checkpoint(TRUNCATE)")
    return queries
