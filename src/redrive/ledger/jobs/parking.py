"""Kinds: which are parked, and for what. Seen by all workers and by the operator, decided by whoever sees an outage."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as insert_postgres
from sqlalchemy.dialects.sqlite import insert as insert_sqlite

from .. import audit
from ..db.clock import now_on
from ..db.session import Session
from ..db.tables import kind
from ..validation import words

ACTOR = "redrive"


class Parked(NamedTuple):
    """A kind that is not handed out for now."""

    kind: str
    signature: str
    reason: str
    since: datetime
    probe_at: datetime
    probes: int


def parked(session: Session, /) -> dict[str, Parked]:
    """The kinds that are parked."""
    columns = (kind.c.kind, kind.c.signature, kind.c.reason, kind.c.parked_at, kind.c.parked_until, kind.c.probes)
    rows = session.core.execute(select(*columns).where(kind.c.parked_at.is_not(None)))
    return {row[0]: Parked(row[0], row[1] or "", row[2] or "", row[3], row[4] or row[3], row[5]) for row in rows}


def park(session: Session, name: str, /, *, signature: str, reason: str, seconds: float) -> bool:
    """Hand this kind out no more, until it is probed, in so many seconds. False: another was first."""
    with session.transaction("park") as connection:
        known(session, name)
        now = now_on(session)
        stored = {
            "parked_at": now, "parked_until": now + timedelta(seconds=seconds), "signature": words(signature),
            "reason": words(reason), "probes": 0, "updated_at": now,
        }  # fmt: skip
        new = update(kind).where(kind.c.kind == name, kind.c.parked_at.is_(None)).values(**stored)
        if not connection.execute(new).rowcount:
            return False
        audit.write(session, actor=ACTOR, action="kind.park", because=reason, what={"kind": name, "signature": signature})
        return True


def probe(session: Session, name: str, /, *, seconds: float) -> bool:
    """Take the right to try one job of a parked kind; the next is in so many seconds. False: not yet, or another has it."""
    with session.transaction("park") as connection:
        now = now_on(session)
        due = (kind.c.kind == name, kind.c.parked_at.is_not(None), kind.c.parked_until <= now)
        later = {"parked_until": now + timedelta(seconds=seconds), "probes": kind.c.probes + 1, "updated_at": now}
        return bool(connection.execute(update(kind).where(*due).values(**later)).rowcount)


def probe_again(session: Session, name: str, /, *, probes: int, seconds: float) -> bool:
    """Undo the longer wait: the last probe said nothing about the service. The next one is in so many seconds.

    probes: their number with that probe. False: another worker has probed since then, or it is not parked.
    """
    with session.transaction("park") as connection:
        now = now_on(session)
        same = (kind.c.kind == name, kind.c.parked_at.is_not(None), kind.c.probes == probes)
        sooner = {"parked_until": now + timedelta(seconds=seconds), "probes": probes - 1, "updated_at": now}
        return bool(connection.execute(update(kind).where(*same).values(**sooner)).rowcount)


def unpark(session: Session, name: str, /, *, because: str) -> bool:
    """Hand this kind out again. False: it was not parked."""
    with session.transaction("park") as connection:
        none = {"parked_at": None, "parked_until": None, "signature": None, "reason": None, "probes": 0}
        freed = update(kind).where(kind.c.kind == name, kind.c.parked_at.is_not(None)).values(**none, updated_at=now_on(session))
        if not connection.execute(freed).rowcount:
            return False
        audit.write(session, actor=ACTOR, action="kind.unpark", because=because, what={"kind": name})
        return True


def known(session: Session, name: str, /) -> None:
    """See to it that the kind has a row, in the transaction that is open."""
    new = (insert_sqlite if session.sqlite else insert_postgres)(kind).values(kind=name, updated_at=now_on(session))
    session.core.execute(new.on_conflict_do_nothing(index_elements=[kind.c.kind]))
