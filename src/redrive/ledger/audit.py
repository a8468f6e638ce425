"""Audit: what people and automations decided: who, when, because of what. Each entry carries the hash of the one before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, insert, select

from .db.clock import now_on
from .db.session import Session
from .db.tables import audit
from .record import Entry
from .validation import words

FIRST = "0" * 64
LOCK = 0x7265647269766532
"""Of Postgres: entries are written one after the other."""
ERASED = "user.erase"
"""The action of an erasure, which may take a user's name out of earlier entries."""
OURSELVES = "redrive"
"""The actor of what no person decided: retries when their time has come, kinds that are parked, sweeps that are halted."""
OTHER = "or the anchor is of another ledger"
LOOKED_THROUGH = 20_000
"""Entries, the newest, among which those of people are looked for."""


def write(session: Session, /, *, actor: str, action: str, because: str, what: Mapping[str, Any]) -> Entry:
    """Add an entry, in the transaction that is open."""
    said(actor, because)
    if not session.sqlite:
        session.core.execute(select(func.pg_advisory_xact_lock(LOCK)))
    last = session.core.execute(select(audit.c.number, audit.c.hash).order_by(audit.c.number.desc()).limit(1)).first()
    entry = Entry(
        number=1 if last is None else last.number + 1,
        at=stamp(now_on(session)) or "",
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


def stamp(moment: datetime | None, /) -> str | None:
    """A moment as it is hashed: text that sorts as the moments do."""
    return None if moment is None else moment.astimezone(timezone.utc).isoformat(timespec="microseconds")


def said(actor: object, because: object, /) -> None:
    """Refuse an act without a name or without a reason."""
    for name, value in (("actor", actor), ("because", because)):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name}= must say {'who acts' if name == 'actor' else 'why'}: {value!r}")


def digest(entry: Entry, /) -> str:
    """The hash of an entry: of all that it says, and of the hash before it."""
    return _digest(entry.number, entry.at, entry.actor, entry.action, entry.because, _text(entry.what), entry.previous)


def _digest(*said_here: object) -> str:
    return hashlib.sha256(json.dumps(said_here, ensure_ascii=True).encode()).hexdigest()


def content_digest(row: Any, /) -> str:
    """The digest of an entry's texts as they stand: what an erasure vouches for after it changed them."""
    return _digest(row.number, row.at, row.actor, row.action, row.because, row.what)


def _rewritten(connection: Connection) -> dict[int, set[str]]:
    """Digests of entries from which a user's name was taken, as the entries about the erasures say."""
    found: dict[int, set[str]] = {}
    for (what,) in connection.execute(select(audit.c.what).where(audit.c.action == ERASED)):
        digests = _read(what).get("rewritten")
        for number, digest_ in (digests if isinstance(digests, dict) else {}).items():
            found.setdefault(int(number), set()).add(str(digest_))
    return found


def entries(
    connection: Connection, /, *, after: int = 0, limit: int = 100, actor: str | None = None, action: str | None = None,
    times: tuple[str | None, str | None] = (None, None), newest: bool = False, people: bool = False,
) -> list[Entry]:  # fmt: skip
    """Entries in their order, or the newest first. action: a whole one (`dead.replay`), or a noun (`dead`). people: not what
    was decided by policies, which may be much: looked for among the newest ones only. times: since and until."""
    query = select(audit).where(audit.c.number > after).order_by(audit.c.number.desc() if newest else audit.c.number).limit(limit)
    if actor is not None:
        query = query.where(audit.c.actor == actor)
    if action is not None:
        query = query.where((audit.c.action == action) | audit.c.action.startswith(f"{action}.", autoescape=True))
    since, until = times
    if since is not None:
        query = query.where(audit.c.at >= since)
    if until is not None:
        query = query.where(audit.c.at < until)
    if people:
        last = select(func.max(audit.c.number)).scalar_subquery()
        query = query.where(audit.c.actor != OURSELVES, audit.c.number > last - LOOKED_THROUGH)
    return [Entry(**row | {"what": _read(row["what"])}) for row in map(dict, connection.execute(query).mappings())]


class Verified(NamedTuple):
    """What a look at the whole chain found."""

    entries: int
    """How many there are; those up to the first broken link, where there is one."""
    head: str
    """The hash of the last one. Kept elsewhere, it shows later that none was cut off at the end."""
    broken: int | None = None
    """The number of the first entry that is not as it was written; None: the chain holds."""
    problem: str | None = None


def head(connection: Connection, /) -> tuple[int, str]:
    """The number and hash of the last entry; of none, 0 and the hash that a chain begins with."""
    last = connection.execute(select(audit.c.number, audit.c.hash).order_by(audit.c.number.desc()).limit(1)).first()
    return (0, FIRST) if last is None else (last.number, last.hash)


def verified(connection: Connection, /, *anchors: tuple[int, str]) -> Verified:
    """Follow the chain from its beginning. anchors: numbers and hashes of entries, as they were noted before."""
    noted: dict[int, set[str]] = {}
    for place, hash_ in anchors:
        noted.setdefault(place, set()).add(hash_)
    number, last_hash, last = 0, FIRST, -(2**62)
    rewritten = _rewritten(connection)
    while page := connection.execute(select(audit).where(audit.c.number > last).order_by(audit.c.number).limit(1000)).all():
        for row in page:
            wrong = _wrong(row, number + 1, last_hash, rewritten.get(row.number, ()))
            if wrong is not None:
                return Verified(number, last_hash, number + 1, wrong)
            number, last_hash = row.number, row.hash
            if noted.get(number, {last_hash}) != {last_hash}:
                return Verified(number, last_hash, number, f"it differs from the anchor: the log was rewritten, {OTHER}")
        last = number
    if noted and number < max(noted):
        missing = f"it is missing: entries up to {max(noted)} were removed, {OTHER}"
        return Verified(number, last_hash, number + 1, missing)
    return Verified(number, last_hash)


def _wrong(row: Any, number: int, previous: str, vouched: Collection[str]) -> str | None:
    if row.number != number:
        return "it was removed" if row.number > number else "it was inserted before the first entry"
    written = _digest(row.number, row.at, row.actor, row.action, row.because, row.what, row.previous)
    if row.hash != written and content_digest(row) not in vouched:
        return "it was changed"
    return None if row.previous == previous else "it does not follow from the entry before it, which was changed or replaced"


def broken(connection: Connection, /) -> int | None:
    """The number of the first entry that was changed, removed or put in; None: the chain holds."""
    return verified(connection).broken


def _read(what: str) -> dict[str, Any]:
    try:
        found = json.loads(what)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"unreadable": what}  # somebody changed it by hand; `verified` says so


def _text(what: Mapping[str, Any]) -> str:
    return json.dumps(what, sort_keys=True, separators=(",", ":"), default=str)
