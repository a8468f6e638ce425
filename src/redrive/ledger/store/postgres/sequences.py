"""Sequences on Postgres: the end of a job releases the next one.

A submitter that sees an unfinished job inserts a held one. Without a lock, the end of that
unfinished job might not see the new one, and leave it held for ever. So submitters take a shared
lock before they look, until they commit. The end of a job tries to take the same lock exclusively:
it never waits for a caller's open transaction. Without the lock it leaves a mark, and workers look
again until no submitter holds the lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from zlib import crc32

from ...db.compiled import Runner, int_array, text_array
from ...db.tables import CHANNEL

Pair = tuple[str, str]
"""Job type and sequence."""

LOCK_CLASS = 1_380_210_257
BUCKETS = 64
"""Locks for all sequences. A lock for each would fill the lock table of the server."""
MAX_MARKS = 1000
"""Marks that one repair looks at."""

LOCK_SHARED = f"""SELECT current_setting('transaction_isolation'),
count(pg_advisory_xact_lock_shared({LOCK_CLASS}, bucket))
FROM unnest(CAST(%(buckets)s AS integer[])) AS bucket"""  # noqa: S608
TRY_LOCK = f"""SELECT bucket FROM unnest(CAST(%(buckets)s AS integer[])) AS bucket
WHERE pg_try_advisory_xact_lock({LOCK_CLASS}, bucket)"""  # noqa: S608
NEW_IDS = """SELECT nextval(pg_get_serial_sequence('redrive_job', 'id'))
FROM generate_series(1, CAST(%(count)s AS integer))"""
PROMOTE = f"""WITH promoted AS (UPDATE redrive_job AS j SET state = 0
FROM (SELECT h.id FROM unnest(CAST(%(kinds)s AS text[]), CAST(%(sequences)s AS text[]))
AS p (kind, sequence) CROSS JOIN LATERAL (SELECT e.id, e.state FROM redrive_job AS e
WHERE e.kind = p.kind AND e.sequence = p.sequence AND e.sequence IS NOT NULL
AND e.state IN (0, 1, 7) ORDER BY e.id LIMIT 1) AS h WHERE h.state = 7) AS head
WHERE j.id = head.id AND j.state = 7 RETURNING j.kind)
SELECT pg_notify('{CHANNEL}', kind), count(*) FROM promoted GROUP BY kind"""  # noqa: S608
MARK = """INSERT INTO redrive_sequence_mark (kind, sequence)
SELECT * FROM unnest(CAST(%(kinds)s AS text[]), CAST(%(sequences)s AS text[]))"""
MARKS = """SELECT id, kind, sequence FROM redrive_sequence_mark ORDER BY id
LIMIT CAST(%(most)s AS integer) FOR UPDATE SKIP LOCKED"""
UNMARK = "DELETE FROM redrive_sequence_mark WHERE id = ANY (CAST(%(ids)s AS bigint[]))"


def lock_for_submit(run: Runner, pairs: Iterable[Pair], /) -> bool:
    """Take the locks of a submitter, in the open transaction.

    Returns:
        Whether later statements of the transaction see what others commit.
    """
    isolation, _ = run.execute(LOCK_SHARED, {"buckets": _buckets(pairs)}).fetchone()
    return bool(isolation == "read committed")


def new_ids(run: Runner, count: int, /) -> list[int]:
    """Draw ids of jobs, in order."""
    return sorted(row[0] for row in run.execute(NEW_IDS, {"count": count}).fetchall())


def release(run: Runner, pairs: Collection[Pair], /, *, in_caller: bool = False) -> None:
    """Make the first unfinished job of each sequence ready, in the open transaction.

    Args:
        run: The transaction in which jobs of the sequences have ended.
        pairs: Job types and sequences.
        in_caller: The transaction is the caller's, and may stay open for long.
    """
    if not pairs:
        return
    unsure = list(pairs)
    if not in_caller:
        free = _try_lock(run, pairs)
        unsure = [pair for pair in pairs if _bucket(pair) not in free]
    mark(run, unsure)
    run.execute(PROMOTE, _arrays(pairs)).fetchall()


def mark(run: Runner, pairs: Collection[Pair], /) -> None:
    """Let workers look at these sequences again."""
    if pairs:
        run.execute(MARK, _arrays(pairs))


def repair(run: Runner, /) -> int:
    """Look at marked sequences again, in the open transaction.

    Returns:
        The number of released jobs.
    """
    marks = run.execute(MARKS, {"most": MAX_MARKS}).fetchall()
    pairs = {(kind, sequence) for _, kind, sequence in marks}
    if not pairs:
        return 0
    free = _try_lock(run, pairs)
    is_full = len(marks) == MAX_MARKS
    ids = [id_ for id_, kind, sequence in marks if is_full or _bucket((kind, sequence)) in free]
    run.execute(UNMARK, {"ids": int_array(ids)})
    if is_full:  # one mark each, at the end: those of an open transaction must not hide others
        mark(run, [pair for pair in pairs if _bucket(pair) not in free])
    return sum(row[1] for row in run.execute(PROMOTE, _arrays(pairs)).fetchall())


def _try_lock(run: Runner, pairs: Iterable[Pair]) -> set[int]:
    return {row[0] for row in run.execute(TRY_LOCK, {"buckets": _buckets(pairs)}).fetchall()}


def _arrays(pairs: Collection[Pair]) -> dict[str, str]:
    ordered: Sequence[Pair] = sorted(pairs)
    return {
        "kinds": text_array(kind for kind, _ in ordered),
        "sequences": text_array(sequence for _, sequence in ordered),
    }


def _bucket(pair: Pair) -> int:
    return crc32("/".join(pair).encode()) % BUCKETS


def _buckets(pairs: Iterable[Pair]) -> str:
    return int_array(sorted({_bucket(pair) for pair in pairs}))
