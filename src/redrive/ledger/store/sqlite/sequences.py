"""Sequences on SQLite: the end of a job releases the next one.

There is one writer at a time, so a submitter and the end of a job always see each other.
"""

from __future__ import annotations

from collections.abc import Collection

from ...db.compiled import BatchRunner

PROMOTE = """UPDATE redrive_job SET state = 0 WHERE state = 7 AND id = (
SELECT id FROM redrive_job WHERE kind = ? AND sequence = ? AND sequence IS NOT NULL
AND state IN (0, 1, 7) ORDER BY id LIMIT 1)"""


def release(run: BatchRunner, pairs: Collection[tuple[str, str]], /) -> None:
    """Make the first unfinished job of each sequence ready, in the open transaction."""
    for pair in sorted(pairs):
        run.execute(PROMOTE, pair)
