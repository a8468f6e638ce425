"""Access to the console: named tokens, and sessions of people.

Of both only a digest is stored, so that a reader of the ledger cannot use them.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    and_,
    delete,
    insert,
    or_,
    select,
    update,
)

from ..errors import NotAllowed
from . import audit
from .db import access_tables
from .db.access_tables import access_token
from .db.clock import now_on
from .db.session import Session, upsert
from .validation import check_name, storable_text

MAX_NAME_BYTES = 200
KEPT = timedelta(days=1)
"""How long the row of an expired session is kept."""
MAX_LISTED = 10_000
LISTS = ("acts", "job_types")


class StoredToken(NamedTuple):
    """A named token, without the token itself. Immutable."""

    name: str
    digest: str
    role: str
    acts: tuple[str, ...] | None
    """None: all."""
    job_types: tuple[str, ...] | None
    """None: all."""
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    """None: never."""
    revoked_at: datetime | None

    def is_valid(self, now: datetime, /) -> bool:
        """Return whether the token is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class StoredSession(NamedTuple):
    """A session of a person, without its cookie. Immutable."""

    id: str
    """Digest of the cookie."""
    name: str
    role: str
    acts: tuple[str, ...] | None
    """None: all."""
    job_types: tuple[str, ...] | None
    """None: all."""
    via: str
    started_at: datetime
    expires_at: datetime
    revoked_at: datetime | None


# --- Tokens


def create_token(session: Session, token: StoredToken, /, *, actor: str, because: str) -> None:
    """Store a token. A revoked or expired token of this name is replaced.

    Args:
        session: A session without a transaction.
        token: The token. Its time and author are set here.
        actor: Who does this, for the audit log.
        because: Why.

    Raises:
        NotAllowed: A valid token of this name exists. Nothing was changed.
    """
    check_name("name", token.name, MAX_NAME_BYTES)
    with session.transaction("token"):
        now = now_on(session)
        existing = _read_tokens(session.core, access_token.c.name == token.name)
        if existing and existing[0].is_valid(now):
            raise NotAllowed(
                f"token {token.name!r}: exists; choose another name, or revoke it first; "
                "nothing was changed"
            )
        stored = token._replace(created_at=now, created_by=storable_text(actor) or "")
        values = _to_row(stored)
        new = upsert(session, access_token).values(values)
        changed = {name: value for name, value in values.items() if name != "name"}
        session.core.execute(
            new.on_conflict_do_update(index_elements=[access_token.c.name], set_=changed)
        )
        what = {
            "name": token.name,
            "role": token.role,
            "acts": token.acts,
            "job_types": token.job_types,
            "expires": audit.to_stamp(token.expires_at),
        }
        audit.write(session, actor=actor, action="token.create", because=because, what=what)


def revoke_token(session: Session, name: str, /, *, actor: str, because: str) -> None:
    """Revoke a token.

    Raises:
        NotAllowed: There is no such token, or it is revoked already. Nothing was changed.
    """
    with session.transaction("token"):
        is_valid = (access_token.c.name == name, access_token.c.revoked_at.is_(None))
        change = update(access_token).where(*is_valid).values(revoked_at=now_on(session))
        if not session.core.execute(change).rowcount:
            raise NotAllowed(
                f"token {name!r}: not found, or revoked already; `redrive tokens list` lists "
                "tokens; nothing was changed"
            )
        what = {"name": name}
        audit.write(session, actor=actor, action="token.revoke", because=because, what=what)


def find_token(connection: Connection, digest: str, /) -> StoredToken | None:
    """Return the token with this digest, also if it is revoked or expired."""
    tokens = _read_tokens(connection, access_token.c.digest == digest)
    return tokens[0] if tokens else None


def list_tokens(connection: Connection, /) -> list[StoredToken]:
    """Return all tokens by name."""
    return _read_tokens(connection)


def _read_tokens(connection: Connection, *where: Any) -> list[StoredToken]:
    query = select(access_token).where(*where).order_by(access_token.c.name).limit(MAX_LISTED)
    rows = connection.execute(query).mappings()
    return [StoredToken(**_from_row(row)) for row in rows]


def _to_row(stored: StoredToken | StoredSession) -> dict[str, Any]:
    """Return the columns of a row. Names are stored as JSON."""
    lists = {name: getattr(stored, name) for name in LISTS}
    texts = {name: None if each is None else json.dumps(each) for name, each in lists.items()}
    return {**stored._asdict(), **texts}


def _from_row(row: RowMapping) -> dict[str, Any]:
    lists = {name: None if row[name] is None else tuple(json.loads(row[name])) for name in LISTS}
    return {**row, **lists}


# --- Sessions


def start_session(session: Session, new: StoredSession, /) -> None:
    """Store a session, and delete those that expired more than a day ago."""
    table = access_tables.session
    with session.transaction("session"):
        old = table.c.expires_at < now_on(session) - KEPT
        session.core.execute(delete(table).where(old))
        session.core.execute(insert(table).values(_to_row(new)))


def find_session(connection: Connection, id_: str, /) -> StoredSession | None:
    """Return a session, also if it is revoked or expired."""
    table = access_tables.session
    row = connection.execute(select(table).where(table.c.id == id_)).mappings().first()
    return None if row is None else StoredSession(**_from_row(row))


def list_sessions(
    connection: Connection, now: datetime, /, *, name: str | None = None
) -> list[StoredSession]:
    """Return the sessions that are neither revoked nor expired, newest first."""
    table = access_tables.session
    query = select(table).where(table.c.revoked_at.is_(None), table.c.expires_at > now)
    if name is not None:
        query = query.where(table.c.name == name)
    query = query.order_by(table.c.started_at.desc(), table.c.id).limit(MAX_LISTED)
    return [StoredSession(**_from_row(row)) for row in connection.execute(query).mappings()]


def end_sessions(
    session: Session,
    /,
    *,
    ids: Collection[str] = (),
    like: StoredSession | None = None,
) -> int:
    """End sessions for the person who has them. The audit log has no entry of it.

    Args:
        session: A session without a transaction.
        ids: Ids of sessions.
        like: Also all sessions of this person with this role, signed in the same way.

    Returns:
        The number of sessions that were ended.
    """
    table = access_tables.session
    which: ColumnElement[bool] = table.c.id.in_(list(ids))
    if like is not None:
        same = [table.c[name] == getattr(like, name) for name in ("name", "role", "via")]
        which = or_(which, and_(*same))
    with session.transaction("session"):
        return _end(session, which)


def revoke_sessions(
    session: Session, /, *, name: str | None, id_: str | None, actor: str, because: str
) -> list[str]:
    """Revoke sessions of others: all of a person, or the one whose id starts with a text.

    Returns:
        The names of the people, one for each session.

    Raises:
        NotAllowed: No session matches. Nothing was changed.
    """
    table = access_tables.session
    with session.transaction("session"):
        now = now_on(session)
        matching = [
            each
            for each in list_sessions(session.core, now, name=name)
            if id_ is None or each.id.startswith(id_)
        ]
        if not matching:
            subject = f"user {name!r}" if id_ is None else f"id {id_!r}"
            raise NotAllowed(
                f"sessions: none of {subject}; `redrive sessions list` lists sessions; "
                "nothing was changed"
            )
        _end(session, table.c.id.in_([each.id for each in matching]))
        names = [each.name for each in matching]
        what = {"users": sorted(set(names)), "sessions": [each.id[:12] for each in matching]}
        audit.write(session, actor=actor, action="session.revoke", because=because, what=what)
    return names


def _end(session: Session, which: Any) -> int:
    table = access_tables.session
    change = update(table).where(which, table.c.revoked_at.is_(None))
    return session.core.execute(change.values(revoked_at=now_on(session))).rowcount
