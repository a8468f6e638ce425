"""The values of an idempotency key: its id, the result of `begin`, and the stored record.

All are immutable. The decision on a stored record is a pure function.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from ..core.key import Key, KeyLike
from ..ledger.timestamps import to_micros
from ..ledger.validation import MAX_KEY_BYTES, check_name

Status: TypeAlias = Literal["processing", "completed", "failed"]
Outcome: TypeAlias = Literal["fresh", "completed", "failed", "busy", "conflict"]


class KeyId(NamedTuple):
    """The columns that identify a key. `str()` returns the text of the key."""

    domain: str
    user_id: str
    key: str

    @classmethod
    def of(cls, key: KeyLike, /) -> Self:
        """Return the id of a key or of its text.

        Raises:
            TypeError: `key` is neither a key nor text.
            ValueError: The text is not a valid key.
        """
        if isinstance(key, str):
            key = Key.parse(key)
        elif not isinstance(key, Key):
            raise TypeError(
                f"a key must be a redrive.Key or its text, not {type(key).__name__}: {key!r}"
            )
        text = str(key)
        check_name("key", text, MAX_KEY_BYTES)
        return cls(key.domain, key.user, text)

    @classmethod
    def from_template(cls, text: str, /) -> Self:
        """Return the id of a text that a template was filled to. Fast if no part is escaped."""
        parts = text.split(":", 3)
        is_plain = "%" not in text and parts[0] and parts[2] and text.isprintable()
        if not is_plain or "::" in f":{parts[3]}:" or ":" not in parts[3]:
            return cls.of(text)
        if len(text) * 4 > MAX_KEY_BYTES:
            check_name("key", text, MAX_KEY_BYTES)
        return cls(parts[0], parts[1], text)

    def __str__(self) -> str:
        return self.key


LeasedKey: TypeAlias = tuple[KeyId, int]
"""A key and the fence of its holder."""


class BeginTerms(NamedTuple):
    """What a caller begins a key with. Durations are in seconds."""

    request_hash: bytes | None
    holder: str
    lease: float
    keep: float


class KeyResult(NamedTuple):
    """The result of the work under a key, which is stored for `keep` seconds."""

    status: Status
    response: bytes | None
    error: str | None
    keep: float


class BeginResult(NamedTuple):
    """The result of `Keys.begin`."""

    outcome: Outcome
    fence: int = 0
    """fresh: the fencing token that the holder shows to settle the key."""
    taken_over: bool = False
    """fresh: an earlier holder crashed, or lost its lease."""
    response: bytes | None = None
    """completed: the response, as JSON."""
    error: dict[str, Any] | None = None
    """failed: the stored error."""
    retry_at: datetime | None = None
    """busy: when to retry."""


class KeyRecord(NamedTuple):
    """The stored record of a key."""

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
    """The status is processing, and the lease has expired: the holder crashed.

    The next caller takes the key over.
    """

    @property
    def error(self) -> dict[str, Any] | None:
        """The stored error: type and message."""
        return None if self.error_stored is None else json.loads(self.error_stored)


MIN_RETRY_SECONDS = 1.0
"""The shortest time after which a caller should retry."""
MAX_EXTRA_RETENTION_SECONDS = 30.0
"""See `extra_retention`."""
MAX_FENCE_JITTER = 1_000_000
"""Maximum random microseconds added to a fence if the clock is behind the previous fence."""


Row: TypeAlias = tuple[Any, ...]
"""The values of a `KeyRow` as the database returns them.

Making a `KeyRow` takes as long as the decision.
"""


class KeyRow(NamedTuple):
    """The columns that the decision reads, in the order of the statements.

    The database compares the timestamps, by its own clock.
    """

    status: str
    request_hash: bytes | None
    fence: int
    response: bytes | None
    error: str | None
    is_leased: bool
    """The lease of the holder has not expired."""
    is_expired: bool
    """The retention of the key is over."""


STORED_COLUMNS = KeyRow._fields[:5]


def decide(row: Row, request_hash: bytes | None, lease: float, /) -> BeginResult | None:
    """Return the result for a new caller.

    None: the key is free, and the caller may take it over.
    """
    status, known_hash, fence, response, error, is_leased, is_expired = row
    if is_expired and not (is_leased and status == "processing"):
        return None
    if known_hash != request_hash and known_hash is not None and request_hash is not None:
        return BeginResult("conflict")
    if status == "completed":
        return BeginResult("completed", response=response)
    if status == "failed":
        return BeginResult("failed", error=json.loads(error or "{}"))
    return BeginResult("busy", retry_at=retry_at(fence, lease)) if is_leased else None


def extra_retention(keep: float, /) -> float:
    """Return the seconds by which a new key is kept longer than `keep`: at most one percent.

    A key that is settled within this time keeps its `expires_at`. To move a row in the index of
    `expires_at` is the most expensive part of settling.
    """
    return min(MAX_EXTRA_RETENTION_SECONDS, keep / 100)


def retry_at(fence: int | None, lease: float, /) -> datetime:
    """Return when a caller should retry a busy key, by this machine's clock.

    The holder is expected to need as long again as it has run, but at most the time of its lease.
    The fence of the holder is the time at which it began. None: not known.
    """
    now = datetime.now(timezone.utc)
    elapsed = 0.0 if fence is None else (to_micros(now) - fence) / 1_000_000
    return now + timedelta(seconds=max(MIN_RETRY_SECONDS, min(elapsed, lease)))
