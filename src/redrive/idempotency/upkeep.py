"""What operators and the keeper do with keys: find, list, release, sweep."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, or_, select, tuple_

from ..errors import NotAllowed
from ..ledger import audit
from ..ledger.now import now_on
from ..ledger.session import Session
from ..ledger.tables import key
from .record import Ident, KeyRecord, Status

_COLUMNS = (
    key.c.domain, key.c.user_id, key.c.key, key.c.status, key.c.fence, key.c.request_hash, key.c.response, key.c.error,
    key.c.holder, key.c.lease_until, key.c.expires_at, key.c.created_at, key.c.updated_at,
)  # fmt: skip
_PLACE = (key.c.domain, key.c.user_id, key.c.key)


def find(session: Session, ident: Ident, /) -> KeyRecord | None:
    """A key, as it stands."""
    found = session.core.execute(select(*_COLUMNS).where(*_at(ident))).first()
    return None if found is None else _record(found, now_on(session))


def page(
    session: Session, domain: str | None, user: str | None, status: Status | None, abandoned: bool, after: KeyRecord | None,
    limit: int, /,
) -> list[KeyRecord]:  # fmt: skip
    """Keys in the order of their names."""
    now = now_on(session)
    wanted = select(*_COLUMNS).order_by(*_PLACE).limit(limit)
    if domain is not None:
        wanted = wanted.where(key.c.domain == domain)
    if user is not None:
        wanted = wanted.where(key.c.user_id == user)
    if status is not None:
        wanted = wanted.where(key.c.status == status)
    if abandoned:
        wanted = wanted.where(key.c.status == "processing", key.c.lease_until <= now)
    if after is not None:
        wanted = wanted.where(tuple_(*_PLACE) > tuple_(after.domain, after.user_id, after.key))
    return [_record(row, now) for row in session.core.execute(wanted)]


def release(session: Session, ident: Ident, /, *, actor: str, because: str, force: bool) -> KeyRecord:
    """Forget a key, and write down who wanted that."""
    audit.said(actor, because)
    with session.transaction("key.release") as connection:
        found = connection.execute(select(*_COLUMNS).where(*_at(ident)).with_for_update()).first()
        if found is None:
            raise NotAllowed(f"key {ident.key!r} not found; nothing was stored under it, or it expired")
        known = _record(found, now_on(session))
        if known.status == "processing" and not known.abandoned and not force:
            raise NotAllowed(
                f"{ident.key} is in use by {known.holder} (lease until {known.lease_until:%H:%M:%S} UTC); "
                "if released, the work could run twice at once. Wait, or force it"
            )
        connection.execute(delete(key).where(*_at(ident)))
        what = {"key": ident.key, "status": known.status, "abandoned": known.abandoned, "forced": force}
        audit.write(session, actor=actor, action="key.release", because=because, what=what)
    return known


def sweep(session: Session, limit: int, /) -> int:
    """Remove what is over: kept long enough, and held by nobody."""
    with session.transaction("key.sweep") as connection:
        now = now_on(session)
        over = and_(key.c.expires_at <= now, or_(key.c.status != "processing", key.c.lease_until <= now))
        old = select(*_PLACE, key.c.fence).where(over).order_by(key.c.expires_at).limit(limit).with_for_update(skip_locked=True)
        found = connection.execute(old).all()
        for row in found:
            connection.execute(delete(key).where(*_at(Ident(*row[:3]))))
    return len(found)


def _at(ident: Ident) -> tuple[ColumnElement[bool], ...]:
    return tuple(column == value for column, value in zip(_PLACE, ident, strict=True))


def _record(row: Any, now: datetime) -> KeyRecord:
    return KeyRecord._make((*row, row.status == "processing" and row.lease_until <= now))
