"""Tokens: where the bearer token comes from, and where a new one comes from when it is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeAlias

Fetch: TypeAlias = Callable[[], str]
"""Gives a token that is good now."""


class Tokens:
    """A token, kept until it is refused. Threads may share it: of those who are refused together, one asks for a new one."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._token: str | None = None

    def get(self, refused: str | None = None) -> str:
        """The token; a new one, where the one in hand is the one that was refused."""
        if self._pid != os.getpid():  # a lock that another thread of the parent held would never be given back
            self._pid, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            if self._token is None or self._token == refused:
                self._token = None
                self._token = self._fetch()
            return self._token

    def __repr__(self) -> str:
        return "<Tokens>"


def credentials(tenant_id: str | None, client_id: str | None, client_secret: str | None) -> dict[str, str] | None:
    """What an app asks for a token with; None where it has no such thing. TypeError names what is missing."""
    given = {"tenant_id": tenant_id, "client_id": client_id, "client_secret": client_secret}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return None
    if missing:
        raise TypeError(f"graph needs all of {', '.join(given)}: {missing[0]} is missing")
    return {
        "client_id": client_id or "",
        "client_secret": client_secret or "",
        "scope": "https://graph.microsoft.com/.default",
        "grant_type": "client_credentials",
    }
