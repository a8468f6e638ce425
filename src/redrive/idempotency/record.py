"""What is known of a key, and what a caller who begins under it is told. Immutable: anything may share these."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from ..core.key import Key, KeyLike
from ..ledger.limits import MAX_KEY, name

Status: TypeAlias = Literal["processing", "completed", "failed"]
Outcome: TypeAlias = Literal["fresh", "completed", "failed", "busy", "conflict"]


class Ident(NamedTuple):
    """A key as it stands in the table. `str()` of it is the key's text."""

    domain: str
    user_id: str
    key: str

    @classmethod
    def of(cls, key: KeyLike, /) -> Self:
        """Of a key or its text; ValueError or TypeError where it is none."""
        if isinstance(key, str):
            key = Key.parse(key)
        elif not isinstance(key, Key):
            raise TypeError(f"a key must be a redrive.Key or its text, not {type(key).__name__}: {key!r}")
        text = str(key)
        name("key", text, MAX_KEY)
        return cls(key.domain, key.user, text)

    @classmethod
    def read(cls, text: str, /) -> Self:
        """Of a text that was put together from a template, part by part: quick where all is plain."""
        parts = text.split(":", 3)
        if "%" in text or not (parts[0] and parts[2] and text.isprintable()) or "::" in f":{parts[3]}:" or ":" not in parts[3]:
            return cls.of(text)
        if len(text) * 4 > MAX_KEY:
            name("key", text, MAX_KEY)
        return cls(parts[0], parts[1], text)

    def __str__(self) -> str:
        return self.key


class Begun(NamedTuple):
    """What became of a caller's wish to begin."""

    outcome: Outcome
    fence: int = 0
    """fresh: what the holder shows when it settles."""
    taken_over: bool = False
    """fresh: an earlier holder has crashed, or lost its lease."""
    response: bytes | None = None
    """completed: JSON."""
    error: dict[str, Any] | None = None
    """failed: what was stored of it."""
    until: datetime | None = None
    """busy: when coming back makes sense."""


class KeyRecord(NamedTuple):
    """A key, as an operator sees it."""

    domain: str
    user_id: str
    key: str
    status: Status
    fence: int
    request_hash: bytes | None
    response: bytes | None
    error_stored: str | None
    holder: str | None
    lease_until: datetime
    expires_at: datetime
    created_at: datetime
    updated_at: datetime
    abandoned: bool
    """In processing, but the holder's lease has run out: it crashed. The next caller takes it over."""

    @property
    def error(self) -> dict[str, Any] | None:
        """What was stored of the failure: type, message, kind."""
        return None if self.error_stored is None else json.loads(self.error_stored)
