"""Redo: what is done, done once more, because a person says so. A new job in the old one's place, under its key."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from sqlalchemy import insert, select, update

from .. import audit
from ..db.clock import now_on
from ..db.session import Session
from ..db.tables import job
from ..state import DONE, DROPPED, STATES
from ..stats.counters import add
from .dead_letters import CARRIED, Sorted


def redo(session: Session, ids: Sequence[int], /, *, actor: str, because: str) -> Sorted:
    """Give each job that is done a new one; job to job. Others are skipped, with what they are."""
    audit.said(actor, because)
    with session.transaction("replay") as connection:
        rows = connection.execute(select(job).where(job.c.id.in_(list(ids))).order_by(job.c.id).with_for_update()).all()
        skipped = dict.fromkeys(ids, "not found")
        now = now_on(session)
        done: dict[int, int] = {}
        changes: dict[str, Counter[str]] = defaultdict(Counter)
        for old in rows:
            if old.state != DONE or not old.current:
                skipped[old.id] = STATES[old.state] if old.current else "replaced by a replay"
                continue
            skipped.pop(old.id)
            connection.execute(update(job).where(job.c.id == old.id).values(state=DROPPED, current=False))
            new = {name: getattr(old, name) for name in CARRIED} | {"payload": old.payload}
            made = insert(job).values(kind=old.kind, key=old.key, created_at=now, due_at=now, replay_of=old.id, **new)
            done[old.id] = connection.execute(made.returning(job.c.id)).scalar_one()
            changes[old.kind].update({"done": -1, "dropped": 1, "submitted": 1, "ready": 1})
        if done:
            add(session, changes)
            jobs = {str(old_id): new_id for old_id, new_id in done.items()}
            audit.write(session, actor=actor, action="event.replay", because=because, what={"jobs": jobs})
    return Sorted(done, skipped)
