"""Sessions of the console that were signed out, stored in the ledger for all processes."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING

from ...core.key import Key
from ...idempotency.keys import Keys
from ...idempotency.record import KeyId
from ..project.target import Operated, ledger_of

if TYPE_CHECKING:
    from ...idempotency.keys import Keys
    from ...idempotency.record import KeyId

DOMAIN = "redrive.console"
FRESH_SECONDS = 5.0
"""Seconds for which a session that was not revoked is not looked up again."""
MAX_REMEMBERED = 10_000


class RevokedSessions:
    """Sessions that were signed out. Threads may share one."""

    def __init__(self, app: Operated, /) -> None:
        self._app = app
        self._keys: Keys | None = None
        self._lock = threading.Lock()
        self._looked_up: OrderedDict[str, tuple[bool, float]] = OrderedDict()
        """By digest of the session: whether it is revoked, and when it was looked up."""

    def revoke(self, session: str, /, *, keep: float) -> None:
        """End a session.

        `keep` is the number of seconds after which it would have ended by itself.
        """
        digest = _digest(session)
        self._remember(digest, revoked=True)
        keys, ident = self._key(digest)
        begun = keys.begin(ident, keep=keep)
        if begun.outcome == "fresh":
            keys.complete(ident, begun.fence, None, keep=keep)

    def is_revoked(self, session: str, /) -> bool:
        """Return whether a session was signed out.

        Another process's sign-out counts after five seconds.
        """
        digest = _digest(session)
        with self._lock:
            revoked, at = self._looked_up.get(digest, (False, float("-inf")))
        if revoked or monotonic() - at < FRESH_SECONDS:
            return revoked
        try:
            keys, ident = self._key(digest)
            revoked = keys.peek(ident) is not None
        except Exception:  # The ledger is not reachable, which the page reports.
            return False
        self._remember(digest, revoked=revoked)
        return revoked

    def _key(self, digest: str) -> tuple[Keys, KeyId]:
        if self._keys is None:
            self._keys = Keys(ledger_of(self._app))
        return self._keys, KeyId.of(Key(DOMAIN, "", digest, "signed-out"))

    def _remember(self, digest: str, *, revoked: bool) -> None:
        with self._lock:
            self._looked_up[digest] = (revoked, monotonic())
            self._looked_up.move_to_end(digest)
            while len(self._looked_up) > MAX_REMEMBERED:
                self._looked_up.popitem(last=False)


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode(errors="replace")).hexdigest()
