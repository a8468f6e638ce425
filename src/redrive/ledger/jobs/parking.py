"""Parked job types: paused in all workers after an outage of the service that they call."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import select, update

from .. import audit
from ..db.clock import now_on
from ..db.session import Session, upsert
from ..db.tables import kind
from ..validation import storable_text

IS_PARKED = kind.c.parked_at.is_not(None)


class ParkedKind(NamedTuple):
    """A job type that is not claimed for now."""

    kind: str
    signature: str
    reason: str
    since: datetime
    probe_at: datetime
    probes: int


def parked_kinds(session: Session, /) -> dict[str, ParkedKind]:
    """Return the parked job types."""
    names = ("kind", "signature", "reason", "parked_at", "parked_until", "probes")
    rows = session.core.execute(select(*(kind.c[name] for name in names)).where(IS_PARKED))
    return {
        name: ParkedKind(name, signature or "", reason or "", since, probe_at or since, probes)
        for name, signature, reason, since, probe_at, probes in rows
    }


def park(session: Session, name: str, /, *, signature: str, reason: str, seconds: float) -> bool:
    """Park a job type until its first probe.

    Args:
        session: A session without a transaction.
        name: The job type.
        signature: Signature of the errors.
        reason: Why, for operators.
        seconds: Time until the first probe.

    Returns:
        False if it was parked already.
    """
    with session.transaction("park"):
        ensure_kind_row(session, name)
        now = now_on(session)
        is_parked = _update(
            session,
            (kind.c.kind == name, kind.c.parked_at.is_(None)),
            parked_at=now,
            parked_until=now + timedelta(seconds=seconds),
            signature=storable_text(signature),
            reason=storable_text(reason),
            probes=0,
            updated_at=now,
        )
        if is_parked:
            audit.write_automatic(session, "kind.park", reason, kind=name, signature=signature)
        return is_parked


def probe(session: Session, name: str, /, *, seconds: float) -> bool:
    """Take the right to run one job of a parked job type. The next probe is after `seconds`.

    Returns:
        False if it is too early, or another worker has the right.
    """
    with session.transaction("park"):
        now = now_on(session)
        return _update(
            session,
            (kind.c.kind == name, IS_PARKED, kind.c.parked_until <= now),
            parked_until=now + timedelta(seconds=seconds),
            probes=kind.c.probes + 1,
            updated_at=now,
        )


def probe_again(
    session: Session, name: str, /, *, probes: int, seconds: float, reason: str | None = None
) -> bool:
    """Take back a probe that told nothing about the service. The next probe is after `seconds`.

    Args:
        session: A session without a transaction.
        name: The job type.
        probes: Number of probes, with that probe.
        seconds: Time until the next probe.
        reason: Why the job type is parked, with the result of this probe. None: unchanged.

    Returns:
        False if another worker has probed since then, or the job type is not parked.
    """
    text = {} if reason is None else {"reason": storable_text(reason)}
    with session.transaction("park"):
        now = now_on(session)
        return _update(
            session,
            (kind.c.kind == name, IS_PARKED, kind.c.probes == probes),
            parked_until=now + timedelta(seconds=seconds),
            probes=probes - 1,
            updated_at=now,
            **text,
        )


def unpark(session: Session, name: str, /, *, because: str, actor: str | None = None) -> bool:
    """Resume a job type. Returns False if it was not parked.

    Args:
        session: A session without a transaction.
        name: The job type.
        because: Why, for the audit log.
        actor: The operator who resumes it. None: Redrive itself.
    """
    with session.transaction("park"):
        was_parked = _update(
            session,
            (kind.c.kind == name, IS_PARKED),
            **dict.fromkeys(("parked_at", "parked_until", "signature", "reason")),
            probes=0,
            updated_at=now_on(session),
        )
        if was_parked:
            who = audit.REDRIVE_ACTOR if actor is None else actor
            what = {"kind": name}
            audit.write(session, actor=who, action="kind.unpark", because=because, what=what)
        return was_parked


def _update(session: Session, where: tuple[Any, ...], **values: Any) -> bool:
    return bool(session.core.execute(update(kind).where(*where).values(**values)).rowcount)


def ensure_kind_row(session: Session, name: str, /) -> None:
    """Insert the row of a job type if it is missing, in the open transaction."""
    new = upsert(session, kind).values(kind=name, updated_at=now_on(session))
    session.core.execute(new.on_conflict_do_nothing(index_elements=[kind.c.kind]))
