"""Audit: what people and automations decided: who, when, because of what. Each entry carries the hash of the one before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timezone
from typing import Any

from sqlalchemy import Connection, func, insert, select

from .limits import words
from .now import now_on
from .record import Entry
from .session import Session
from .tables import audit

FIRST = "0" * 64
LOCK = 0x7265647269766532
"""Of Postgres: entries are written one after the other."""


def write(session: Session, /, *, actor: str, action: str, because: str, what: Mapping[str, Any]) -> Entry:
    """Add an entry, in the transaction that is open."""
    said(actor, because)
    if not session.sqlite:
        session.core.execute(select(func.pg_advisory_xact_lock(LOCK)))
    last = session.core.execute(select(audit.c.number, audit.c.hash).order_by(audit.c.number.desc()).limit(1)).first()
    at = now_on(session).astimezone(timezone.utc).isoformat(timespec="microseconds")
    entry = Entry(
        number=1 if last is None else last.number + 1,
        at=at,
        actor=words(actor) or "",
        action=action,
        because=words(because) or "",
        what=dict(what),
        previous=FIRST if last is None else last.hash,
        hash="",
    )
    entry = entry._replace(hash=digest(entry))
    session.core.execute(insert(audit).values(**entry._asdict() | {"what": _text(entry.what)}))
    return entry


def said(actor: object, because: object, /) -> None:
    """Refuse an act without a name or without a reason."""
    for name, value in (("actor", actor), ("because", because)):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name}= must say {'who does this' if name == 'actor' else 'why'}: {value!r}")


def digest(entry: Entry, /) -> str:
    """The hash of an entry: of all that it says, and of the hash before it."""
    said_here = [entry.number, entry.at, entry.actor, entry.action, entry.because, _text(entry.what), entry.previous]
    return hashlib.sha256(json.dumps(said_here, ensure_ascii=True).encode()).hexdigest()


def entries(connection: Connection, /, *, after: int = 0, limit: int = 100) -> list[Entry]:
    """Entries in their order."""
    found = connection.execute(select(audit).where(audit.c.number > after).order_by(audit.c.number).limit(limit))
    return [Entry(**row | {"what": json.loads(row["what"])}) for row in map(dict, found.mappings())]


def broken(connection: Connection, /) -> int | None:
    """The number of the first entry that was changed, removed or put in; None: the chain holds."""
    number, previous = 0, FIRST
    while page := entries(connection, after=number, limit=1000):
        for entry in page:
            number += 1
            if entry.number != number or entry.previous != previous or digest(entry) != entry.hash:
                return number
            previous = entry.hash
    return None


def _text(what: Mapping[str, Any]) -> str:
    return json.dumps(what, sort_keys=True, separators=(",", ":"), default=str)
