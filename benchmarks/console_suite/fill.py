"""Fill a ledger with jobs in every state, dead letters and failure groups, with a few SQL statements."""

from redrive.ledger import Ledger, NewJob
from redrive.ledger.stats import activity
from redrive.ops import DeadLetterFilter, Operator

KINDS = 20
CAUSES = 10
"""Failure signatures per job type."""

# Of ten jobs, four are done, two due, one in the future, two waiting for a retry, and one dropped.
JOBS = """
INSERT INTO redrive_job (kind, key, payload, state, attempts, reason, error, due_at, created_at, started_at, ended_at, worker)
SELECT 'kind.' || (n / 10 % {kinds}), 'shop:u' || (n % 977) || ':o-' || n || ':receipt:v1', {payload},
  CASE WHEN n % 10 < 4 THEN 2 WHEN n % 10 < 9 THEN 0 ELSE 4 END, CASE WHEN n % 10 IN (7, 8) THEN 2 ELSE 0 END,
  CASE WHEN n % 10 IN (7, 8) THEN 'failed' END, CASE WHEN n % 10 IN (7, 8) THEN 'TimeoutError: no answer after 10 s' END,
  CASE n % 10 WHEN 6 THEN {later} ELSE {then} END, {then}, CASE WHEN n % 10 < 4 THEN {then} END,
  CASE WHEN n % 10 < 4 OR n % 10 = 9 THEN {then} END, CASE WHEN n % 10 < 4 THEN 'web-' || (n % 7) END
FROM {numbers}
"""
DEAD_JOBS = """
INSERT INTO redrive_job (kind, key, payload, state, attempts, reason, error, due_at, created_at, started_at, ended_at, worker)
SELECT 'kind.' || (n / {causes} % {kinds}), 'shop:u' || (n % 977) || ':d-' || n || ':receipt:v1', {payload}, 3, 5, 'attempts',
  'Error' || (n % {causes}) || ': no answer from host ' || n, {then}, {then}, {then}, {then}, 'web-1' FROM {numbers}
"""
LETTERS = """
INSERT INTO redrive_dead (kind, key, job_id, reason, error, signature, attempts, payload, last_attempt_at, created_at, updated_at,
  told_at)
SELECT kind, key, id, 'attempts', error, 'Error' || (id % {causes}) || ': no answer from host #', 5, payload, created_at,
  created_at, created_at, created_at
FROM redrive_job WHERE state = 3
"""
ATTEMPTS = """
INSERT INTO redrive_attempt (job_id, fence, number, outcome, worker, reason, error, started_at, ended_at)
SELECT id, 1, 5, 'failed', 'web-1', 'attempts', error, created_at, ended_at FROM redrive_job WHERE state = 3
"""
TALLIES = """
INSERT INTO redrive_tally (kind, submitted, ready, done, dead, dropped)
SELECT kind, count(*), sum(CASE state WHEN 0 THEN 1 ELSE 0 END), sum(CASE state WHEN 2 THEN 1 ELSE 0 END),
  sum(CASE state WHEN 3 THEN 1 ELSE 0 END), sum(CASE state WHEN 4 THEN 1 ELSE 0 END)
FROM redrive_job GROUP BY kind
"""
GROUPS = """
INSERT INTO redrive_failure (kind, signature, tries, died, pending, blocked, first_at, last_at, job_id, error)
SELECT kind, signature, 5 * count(*), count(*), count(*), 0, min(created_at), max(created_at), max(job_id), max(error)
FROM redrive_dead GROUP BY kind, signature
"""
SLOTS = """
INSERT INTO redrive_failure_slot (slot, kind, signature, tries, died)
SELECT {slot}, kind, signature, 5 * count(*), count(*) FROM redrive_dead GROUP BY {slot}, kind, signature
"""
WHOLE = """
INSERT INTO redrive_failure_slot (slot, kind, signature, tries, died)
SELECT slot, kind, '\x01', sum(tries), sum(died) FROM redrive_failure_slot GROUP BY slot, kind
"""

# 100 days of ten queries. The number of customers depends on the size. Some partitions failed, and some of these are terminal.
PARTITIONS = """
INSERT INTO redrive_partition (source, query_name, logical_date, customer_id, status, shade, current_run_id, attempt_count,
  dispatch_count, last_verdict, reason, error, updated_at)
SELECT 'crm', 'query_' || (n % 10), {day}, 'c-' || (n / 1000), CASE WHEN n % 7 < 2 THEN 'failed' ELSE 'success' END,
  CASE n % 7 WHEN 0 THEN 4 WHEN 1 THEN 3 ELSE 0 END, CASE WHEN n % 7 < 2 THEN NULL ELSE 'run-' || n END, 1, 1,
  CASE WHEN n % 7 < 2 THEN 'rejected' ELSE 'accepted' END, CASE WHEN n % 7 < 2 THEN 'row_count' END,
  CASE WHEN n % 7 < 2 THEN '48 rows, expected at least 120' END, {now}
FROM {numbers}
"""
ROLLUP = """
INSERT INTO redrive_partition_rollup (source, query_name, logical_date, shade, n)
SELECT source, query_name, logical_date, shade, count(*) FROM redrive_partition GROUP BY source, query_name, logical_date, shade
"""


def fill(ledger: Ledger, size: int) -> None:
    """Insert jobs and as many dead letters of the last three days, and a few workers and sweeps."""
    with ledger.connections.write.use() as session:
        if session.sqlite:
            numbers = f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {size}) SELECT n FROM s)"
            now = "(CAST(strftime('%s', 'now') AS INTEGER) * 1000000)"
            values = {
                "numbers": numbers, "then": f"({now} - (n * 7919 % 259200) * 1000000)", "later": f"({now} + 864000000000)",
                "now": now, "day": "date('now', '-' || (n / 10 % 100 + 1) || ' days')",
                "slot": "created_at / 600000000", "payload": "CAST('{\"order\": ' || n || '}' AS BLOB)",
            }  # fmt: skip
        else:
            values = {
                "numbers": f"generate_series(1, {size}) n", "then": "(now() - (n::bigint * 7919 % 259200) * interval '1 s')",
                "now": "now()", "day": "current_date - (n / 10 % 100 + 1)", "later": "(now() + interval '10 d')",
                "slot": "floor(extract(epoch FROM created_at) / 600)",
                "payload": "convert_to('{\"order\": ' || n || '}', 'UTF8')",
            }  # fmt: skip
            session.expect_nothing()  # a statement inserts a million rows
            session.raw.execute("SET statement_timeout = 0")
        for statement in (JOBS, DEAD_JOBS, LETTERS, ATTEMPTS, TALLIES, GROUPS, SLOTS, WHOLE, PARTITIONS, ROLLUP):
            text = statement
            for name, value in {**values, "kinds": str(KINDS), "causes": str(CAUSES)}.items():
                text = text.replace(f"{{{name}}}", value)
            session.raw.execute(text)
        session.raw.execute("ANALYZE" if session.sqlite else "VACUUM ANALYZE")
        session.expect_answer()
    for number in range(5):
        ledger.maintenance.heartbeat(
            f"web-{number}", {"kinds": [f"kind.{each}" for each in range(KINDS)], "threads": 8, "version": "1"}
        )
    fill_activity(ledger, days=1 if size <= SMALL else 90)
    ledger.submit_many([NewJob("kind.0", f"now-{each}", priority=-2) for each in range(40)])
    ledger.claim({"kind.0": 40}, worker="web-1", lease=3600)
    ann = Operator(ledger, actor="ann")
    for _ in range(3):
        ann.apply(ann.dead_letters.replay(DeadLetterFilter(kind="kind.1", limit=50)), because="measured")
    ledger.maintenance.fold_counters()


SMALL = 1000


def fill_activity(ledger: Ledger, days: int) -> None:
    """Insert activity of every job type: minutes per worker, then slots of ten minutes and of an hour."""
    now = activity.minute_of(ledger.now())
    minutes_kept = int(activity.TEN_MINUTES_KEPT.total_seconds()) // 60
    counts = {bucket: 1 + bucket % 7 for bucket in range(20, 70)}
    slots = [(now - minute, 1, f"web-{worker}") for minute in range(15) for worker in range(5)]
    slots += [(now - minute, 1, "") for minute in range(15, 180)]
    slots += [(now // 10 * 10 - minute, 10, "") for minute in range(190, min(days * 1440, minutes_kept), 10)]
    slots += [(now // 60 * 60 - minute, 60, "") for minute in range(minutes_kept, days * 1440, 60)]
    with ledger.connections.write.use() as session:
        for slot, span, worker in slots:
            rows = [
                activity.ActivityRow(kind, slot, span, 90, 5, 2, 0, counts, counts)
                for kind in ("", *(f"kind.{number}" for number in range(KINDS)))
            ]
            activity.write(session, worker, rows)
