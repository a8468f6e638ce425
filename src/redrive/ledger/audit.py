"""The audit log: who decided what, when and why. Each entry contains the hash of the one before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection, func, insert, select

from .db.clock import now_on
from .db.session import Session
from .db.tables import audit
from .model import Entry
from .validation import storable_text

FIRST_HASH = "0" * 64
LOCK = 0x7265647269766532
"""Advisory lock of Postgres: entries are written one after the other."""
ERASED = "user.erase"
"""Action of an erasure, which may remove a user's name from earlier entries."""
REDRIVE_ACTOR = "redrive"
"""Actor of automatic decisions: retries that are due, parked job types, halted sweeps."""
MAX_SEARCHED = 20_000
"""Newest entries that are searched for decisions of people."""
PAGE_SIZE = 1000
VIA = "via"
"""Detail of an entry: how its actor was authenticated."""


class Actor(str):
    """The name of an operator, with how it was authenticated and what it may do. Immutable.

    It is passed wherever a name is, so that every entry of the audit log has both.
    """

    __slots__ = ("check", "via")
    via: str | None
    """Such as `oidc`. None: not known."""
    check: Callable[[str], None] | None
    """Raises an error if the actor has no right for an action of the audit log."""

    def __new__(
        cls, name: str, /, *, via: str | None = None, check: Callable[[str], None] | None = None
    ) -> Self:
        """Make an actor."""
        actor = super().__new__(cls, name)
        actor.via, actor.check = via, check
        return actor


def write(
    session: Session, /, *, actor: str, action: str, because: str, what: Mapping[str, Any]
) -> Entry:
    """Add an entry in the open transaction."""
    check_actor(actor, because)
    if isinstance(actor, Actor):
        if actor.check is not None:
            actor.check(action)
        if actor.via is not None:
            what = {**what, VIA: actor.via}
    session.lock(LOCK)
    number, previous = head(session.core)
    entry = Entry(
        number=number + 1,
        at=to_stamp(now_on(session)) or "",
        actor=storable_text(actor) or "",
        action=action,
        because=storable_text(because) or "",
        what=dict(what),
        previous=previous,
        hash="",
    )
    entry = entry._replace(hash=digest(entry))
    values = entry._asdict() | {"what": _to_json(entry.what)}
    session.core.execute(insert(audit).values(**values))
    return entry


def write_automatic(session: Session, action: str, because: str, /, **what: Any) -> None:
    """Add an entry for a decision of Redrive itself."""
    write(session, actor=REDRIVE_ACTOR, action=action, because=because, what=what)


def to_stamp(timestamp: datetime | None, /) -> str | None:
    """Return a timestamp as it is hashed: text that sorts by time."""
    if timestamp is None:
        return None
    return timestamp.astimezone(timezone.utc).isoformat(timespec="microseconds")


def check_actor(actor: object, because: object, /) -> None:
    """Reject a decision without an actor or without a reason."""
    for name, value, meaning in (("actor", actor, "who acts"), ("because", because, "why")):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name}= must say {meaning}: {value!r}")


def digest(entry: Entry, /) -> str:
    """Return the hash of an entry: of all its fields and of the hash before it."""
    return _sha256(
        entry.number,
        entry.at,
        entry.actor,
        entry.action,
        entry.because,
        _to_json(entry.what),
        entry.previous,
    )


def _sha256(*fields: object) -> str:
    return hashlib.sha256(json.dumps(fields, ensure_ascii=True).encode()).hexdigest()


def content_digest(row: Any, /) -> str:
    """Return the digest of an entry's texts. An erasure that changes them stores the new digest."""
    return _sha256(row.number, row.at, row.actor, row.action, row.because, row.what)


def _erasure_digests(connection: Connection) -> dict[int, set[str]]:
    """Return the digests of entries that erasures changed, from the entries of the erasures."""
    digests: dict[int, set[str]] = {}
    for (what,) in connection.execute(select(audit.c.what).where(audit.c.action == ERASED)):
        rewritten = _from_json(what).get("rewritten")
        for number, value in (rewritten if isinstance(rewritten, dict) else {}).items():
            digests.setdefault(int(number), set()).add(str(value))
    return digests


def entries(
    connection: Connection,
    /,
    *,
    after: int = 0,
    limit: int = 100,
    actor: str | None = None,
    action: str | None = None,
    times: tuple[str | None, str | None] = (None, None),
    newest: bool = False,
    people: bool = False,
) -> list[Entry]:
    """Return entries, oldest first.

    Args:
        connection: The connection.
        after: Only entries with a higher number.
        limit: Maximum number.
        actor: Only of this actor.
        action: A whole action (`dead.replay`), or its noun (`dead`).
        times: Since and until, as `to_stamp` returns them.
        newest: Newest first.
        people: Without automatic decisions. Searches the newest entries only.
    """
    order = audit.c.number.desc() if newest else audit.c.number
    query = select(audit).where(audit.c.number > after).order_by(order).limit(limit)
    if actor is not None:
        query = query.where(audit.c.actor == actor)
    if action is not None:
        has_noun = audit.c.action.startswith(f"{action}.", autoescape=True)
        query = query.where((audit.c.action == action) | has_noun)
    since, until = times
    if since is not None:
        query = query.where(audit.c.at >= since)
    if until is not None:
        query = query.where(audit.c.at < until)
    if people:
        last = select(func.max(audit.c.number)).scalar_subquery()
        query = query.where(audit.c.actor != REDRIVE_ACTOR, audit.c.number > last - MAX_SEARCHED)
    rows = map(dict, connection.execute(query).mappings())
    return [Entry(**row | {"what": _from_json(row["what"])}) for row in rows]


class Verification(NamedTuple):
    """The result of a check of the whole chain."""

    entries: int
    """Number of entries, up to the first broken one."""
    head: str
    """Hash of the last entry. Stored elsewhere, it later shows that no entry was cut off."""
    broken: int | None = None
    """Number of the first entry that was changed. None: the chain is intact."""
    problem: str | None = None


def head(connection: Connection, /) -> tuple[int, str]:
    """Return the number and hash of the last entry. Without entries: 0 and the first hash."""
    query = select(audit.c.number, audit.c.hash).order_by(audit.c.number.desc()).limit(1)
    last = connection.execute(query).first()
    return (0, FIRST_HASH) if last is None else (last.number, last.hash)


def verify(connection: Connection, /, *anchors: tuple[int, str]) -> Verification:
    """Check the chain from its beginning.

    Args:
        connection: The connection.
        anchors: Numbers and hashes of entries that were stored elsewhere.
    """
    expected: dict[int, set[str]] = {}
    for number, anchor_hash in anchors:
        expected.setdefault(number, set()).add(anchor_hash)
    other = "or the anchor is of another ledger"
    number, last_hash = 0, FIRST_HASH
    after = -(2**62)
    erased = _erasure_digests(connection)
    pages = select(audit).order_by(audit.c.number).limit(PAGE_SIZE)
    while page := connection.execute(pages.where(audit.c.number > after)).all():
        for row in page:
            problem = _find_problem(row, number + 1, last_hash, erased.get(row.number, ()))
            if problem is not None:
                return Verification(number, last_hash, number + 1, problem)
            number, last_hash = row.number, row.hash
            if expected.get(number, {last_hash}) != {last_hash}:
                problem = f"it differs from the anchor: the log was rewritten, {other}"
                return Verification(number, last_hash, number, problem)
        after = number
    if expected and number < max(expected):
        problem = f"it is missing: entries up to {max(expected)} were removed, {other}"
        return Verification(number, last_hash, number + 1, problem)
    return Verification(number, last_hash)


def _find_problem(
    row: Any, number: int, previous: str, erasure_digests: Collection[str]
) -> str | None:
    if row.number != number:
        is_later = row.number > number
        return "it was removed" if is_later else "it was inserted before the first entry"
    fields = (row.number, row.at, row.actor, row.action, row.because, row.what, row.previous)
    if row.hash != _sha256(*fields) and content_digest(row) not in erasure_digests:
        return "it was changed"
    if row.previous != previous:
        return "it does not follow from the entry before it, which was changed or replaced"
    return None


def _from_json(what: str) -> dict[str, Any]:
    try:
        value = json.loads(what)
    except ValueError:
        value = None
    # The entry was changed by hand. `verify` reports it.
    return value if isinstance(value, dict) else {"unreadable": what}


def _to_json(what: Mapping[str, Any]) -> str:
    return json.dumps(what, sort_keys=True, separators=(",", ":"), default=str)
