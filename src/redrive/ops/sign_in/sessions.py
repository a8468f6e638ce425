"""Sessions of the console: list and revoke them, and check each request against the ledger.

All console processes share the ledger, so that a revoked session or token ends in all of them.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from ...core.clock import SYSTEM
from ...ledger import access
from ...ledger.access import StoredSession as StoredSession  # noqa: PLC0414  # the console has it from here
from ...ledger.access import StoredToken as StoredToken  # noqa: PLC0414  # the same
from ..context import OperatorContext, check_reason
from ..project.target import Operated, ledger_of
from .hashes import hashed_token
from .rights import Rights

FRESH_SECONDS = 2.0
"""Seconds for which a session or a token is not looked up again."""
MAX_REMEMBERED = 10_000
SHOWN_ID_CHARS = 12


@dataclass(frozen=True, slots=True)
class SessionLine:
    """A session of a person that has not ended."""

    id: str
    """Its first characters. The cookie cannot be derived from it."""
    user: str
    role: str
    via: str
    """How the person signed in, such as `password` or `oidc`."""
    started_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SessionOperations:
    """Operations on sessions of the console, as `Operator.sessions`. Threads may share one."""

    _context: OperatorContext

    def find(self, *, user: str | None = None) -> list[SessionLine]:
        """Return the sessions that have not ended, newest first.

        Args:
            user: Only sessions of this person.

        Returns:
            The sessions.
        """
        ledger = self._context.ledger
        now = ledger.now()
        with ledger.reading() as connection:
            return [
                SessionLine(
                    each.id[:SHOWN_ID_CHARS],
                    each.name,
                    each.role,
                    each.via,
                    each.started_at,
                    each.expires_at,
                )
                for each in access.list_sessions(connection, now, name=user)
            ]

    def revoke(
        self, *, because: str, user: str | None = None, session_id: str | None = None
    ) -> int:
        """Revoke sessions. Consoles reject them within two seconds.

        Args:
            because: Why, for the audit log.
            user: All sessions of this person.
            session_id: The session with this id.

        Returns:
            The number of sessions.

        Raises:
            ValueError: Neither a user nor an id is passed, or both.
            NotAllowed: No session matches. Nothing was changed.
        """
        check_reason(because)
        self._context.require("access", None)
        if (user is None) == (session_id is None) or session_id == "":
            raise ValueError("sessions: pass a user or an id; nothing was changed")
        with self._context.ledger.connections.write.use() as session:
            names = access.revoke_sessions(
                session, name=user, id_=session_id, actor=self._context.actor, because=because
            )
        return len(names)


class AccessStore:
    """Sessions and named tokens in the ledger, as the console checks them. Threads may share one.

    Each is looked up at most every two seconds. An error of the ledger is raised: a session that
    cannot be checked lets no request in.
    """

    def __init__(self, app: Operated, /) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._looked_up: OrderedDict[str, tuple[Any, float]] = OrderedDict()
        """By digest: the row, and when it was looked up."""

    def start(
        self,
        cookie: str,
        /,
        *,
        name: str,
        role: str,
        via: str,
        seconds: float,
        rights: Rights | None = None,
    ) -> None:
        """Store a new session.

        Args:
            cookie: The cookie. Only its digest is stored.
            name: Name of the person.
            role: The role.
            via: How the person signed in.
            seconds: When it expires.
            rights: Acts and job types. None: all.
        """
        ledger = ledger_of(self._app)
        now = ledger.now()
        new = StoredSession(
            id=_digest(cookie),
            name=name,
            role=role,
            acts=None if rights is None else _sorted(rights.acts),
            job_types=None if rights is None else _sorted(rights.job_types),
            via=via,
            started_at=now,
            expires_at=now + timedelta(seconds=seconds),
            revoked_at=None,
        )
        with ledger.connections.write.use() as session:
            access.start_session(session, new)
        self._remember(new.id, new)

    def find_session(self, cookie: str, /) -> StoredSession | None:
        """Return a session that is neither revoked nor expired."""
        stored: StoredSession | None = self._find(_digest(cookie), access.find_session)
        is_ended = stored is None or stored.revoked_at or stored.expires_at <= SYSTEM.now()
        return None if is_ended else stored

    def end(self, cookie: str, /, *, everywhere: bool = False) -> int:
        """End a session, or all sessions of its person with the same role and way in.

        Returns:
            The number of sessions that were ended.
        """
        digest = _digest(cookie)
        ledger = ledger_of(self._app)
        with ledger.reading() as connection:
            own = access.find_session(connection, digest)
        with ledger.connections.write.use() as session:
            count = access.end_sessions(session, ids=[digest], like=own if everywhere else None)
        with self._lock:
            self._looked_up.clear()
        return count

    def find_token(self, text: str, /) -> StoredToken | None:
        """Return a named token that is neither revoked nor expired."""
        digest = hashed_token(text)
        stored: StoredToken | None = self._find(digest, access.find_token)
        return stored if stored is not None and stored.is_valid(SYSTEM.now()) else None

    def _find(self, digest: str, read: Callable[[Any, str], Any]) -> Any:
        with self._lock:
            row, at = self._looked_up.get(digest, (None, float("-inf")))
        if monotonic() - at < FRESH_SECONDS:
            return row
        with ledger_of(self._app).reading() as connection:
            row = read(connection, digest)
        self._remember(digest, row)
        return row

    def _remember(self, digest: str, row: Any) -> None:
        with self._lock:
            self._looked_up[digest] = (row, monotonic())
            self._looked_up.move_to_end(digest)
            while len(self._looked_up) > MAX_REMEMBERED:
                self._looked_up.popitem(last=False)


def _sorted(names: Collection[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(names))


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode(errors="replace")).hexdigest()
