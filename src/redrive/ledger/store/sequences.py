"""Sequences: jobs of one type and sequence run one after another.

Only the first unfinished job of a sequence is ready. The others are held: no claim reads them. A
job that ends releases the next one in the same transaction.

Every place that ends jobs or adds them calls a function of this module:

- `release` after jobs became done, dead, blocked, cancelled or discarded.
- `hold` after jobs were inserted as ready, such as replays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import exists, update

from ..db.compiled import sql_int
from ..db.job_tables import sequence_mark
from ..db.session import Session
from ..db.tables import SEQUENCED, job
from ..model import HELD
from .postgres import sequences as on_postgres
from .sqlite import sequences as on_sqlite


def release(session: Session, ended: Iterable[Any], /) -> None:
    """Release the next jobs of the sequences of ended jobs, in the open transaction.

    Args:
        session: The session whose transaction has ended the jobs.
        ended: The ended jobs: rows with `kind` and `sequence`. Jobs without a sequence are ignored.
    """
    pairs = {(row.kind, row.sequence) for row in ended if row.sequence is not None}
    if not pairs:
        return
    if session.sqlite:
        on_sqlite.release(session.raw, pairs)
    else:
        on_postgres.release(session.run, pairs)


def hold(session: Session, inserted: Sequence[Any], /) -> None:
    """Hold new jobs that are not the first of their sequence, in the open transaction.

    Args:
        session: The session whose transaction has inserted the jobs as ready.
        inserted: The new jobs: rows with `id`, `kind` and `sequence`.
    """
    rows = [row for row in inserted if row.sequence is not None]
    if not rows:
        return
    if not session.sqlite:
        on_postgres.lock_for_submit(session.run, {(row.kind, row.sequence) for row in rows})
    earlier = job.alias("earlier")
    has_earlier = exists().where(
        earlier.c.kind == job.c.kind,
        earlier.c.sequence == job.c.sequence,
        earlier.c.sequence.is_not(None),
        earlier.c.state.in_((sql_int(0), sql_int(1), sql_int(HELD))),
        earlier.c.id < job.c.id,
    )
    is_new = job.c.id.in_([row.id for row in rows])
    session.core.execute(update(job).where(is_new, SEQUENCED, has_earlier).values(state=HELD))


def repair(session: Session, /) -> int:
    """Look again at sequences whose next job may have been missed.

    Workers call it if `HAS_MARKS`.

    Returns:
        The number of released jobs.
    """
    with session.transaction("sequence"):
        return repair_in(session)


def repair_in(session: Session, /) -> int:
    """Look again at marked sequences, in the open transaction."""
    return 0 if session.sqlite else on_postgres.repair(session.run)


HAS_MARKS = exists().select_from(sequence_mark)
"""Whether `repair` has something to do."""
