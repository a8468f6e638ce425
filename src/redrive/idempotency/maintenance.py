"""Maintenance of stored keys: find, list, release by an operator, and remove expired ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, or_, select, tuple_

from ..errors import NotAllowed
from ..ledger import audit
from ..ledger.db.clock import now_on
from ..ledger.db.session import Session
from ..ledger.db.tables import key as table
from .record import KeyId, KeyRecord, Status

_RECORD_COLUMNS = (
    table.c.domain,
    table.c.user_id,
    table.c.key,
    table.c.status,
    table.c.fence,
    table.c.request_hash,
    table.c.response,
    table.c.error,
    table.c.holder,
    table.c.lease_until,
    table.c.expires_at,
    table.c.created_at,
    table.c.updated_at,
)
_PRIMARY_KEY = (table.c.domain, table.c.user_id, table.c.key)


def find(session: Session, key: KeyId, /) -> KeyRecord | None:
    """Return the record of a key, or None."""
    row = session.core.execute(select(*_RECORD_COLUMNS).where(*_is_key(key))).first()
    return None if row is None else _to_record(row, now_on(session))


def page(
    session: Session,
    /,
    *,
    domain: str | None,
    user: str | None,
    status: Status | None,
    abandoned: bool,
    after: KeyRecord | None,
    limit: int,
) -> list[KeyRecord]:
    """Return records by domain, user and key."""
    now = now_on(session)
    query = select(*_RECORD_COLUMNS).order_by(*_PRIMARY_KEY).limit(limit)
    if domain is not None:
        query = query.where(table.c.domain == domain)
    if user is not None:
        query = query.where(table.c.user_id == user)
    if status is not None:
        query = query.where(table.c.status == status)
    if abandoned:
        query = query.where(table.c.status == "processing", table.c.lease_until <= now)
    if after is not None:
        query = query.where(tuple_(*_PRIMARY_KEY) > tuple_(after.domain, after.user_id, after.key))
    return [_to_record(row, now) for row in session.core.execute(query)]


def release(session: Session, key: KeyId, /, *, actor: str, because: str, force: bool) -> KeyRecord:
    """Delete a key, with an entry in the audit log."""
    audit.check_actor(actor, because)
    with session.transaction("key.release") as connection:
        locked = select(*_RECORD_COLUMNS).where(*_is_key(key)).with_for_update()
        row = connection.execute(locked).first()
        if row is None:
            raise NotAllowed(
                f"key {key.key!r} not found; it was never used, was released, or has expired"
            )
        record = _to_record(row, now_on(session))
        if record.status == "processing" and not record.abandoned and not force:
            raise NotAllowed(
                f"{key.key} is in use by {record.holder} (lease until "
                f"{record.lease_until:%H:%M:%S} UTC); "
                "if released, the work could run twice at once. Wait, or force it"
            )
        connection.execute(delete(table).where(*_is_key(key)))
        state = {"status": record.status, "abandoned": record.abandoned}
        details = {"key": key.key, **state, "forced": force}
        audit.write(session, actor=actor, action="key.release", because=because, what=details)
    return record


def sweep(session: Session, limit: int, /) -> int:
    """Remove keys whose retention is over and that have no holder. Returns their number."""
    with session.transaction("key.sweep") as connection:
        now = now_on(session)
        has_no_holder = or_(table.c.status != "processing", table.c.lease_until <= now)
        expired = (
            select(*_PRIMARY_KEY, table.c.fence)
            .where(and_(table.c.expires_at <= now, has_no_holder))
            .order_by(table.c.expires_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        rows = connection.execute(expired).all()
        for row in rows:
            connection.execute(delete(table).where(*_is_key(KeyId(*row[:3]))))
    return len(rows)


def _is_key(key: KeyId) -> tuple[ColumnElement[bool], ...]:
    return tuple(column == value for column, value in zip(_PRIMARY_KEY, key, strict=True))


def _to_record(row: Any, now: datetime) -> KeyRecord:
    is_abandoned = row.status == "processing" and row.lease_until <= now
    return KeyRecord._make((*row, is_abandoned))
