"""What the calls of a client take by name."""

from __future__ import annotations

from collections.abc import AsyncIterable, Collection, Iterable, Mapping
from typing import Any, Literal, TypedDict

from ..core.key import KeyLike
from ..core.seconds import Seconds


class Asking(TypedDict, total=False):
    """Of every call."""

    params: Mapping[str, Any] | None
    """The query."""
    headers: Mapping[str, str] | None
    ok_statuses: Collection[int]
    """Statuses that are no failure beside 2xx: 409 for create-if-absent."""
    operation: str | None
    """The name in journal, budget and tests; without it, method and host."""
    timeout: Seconds | None
    """Seconds for the whole call: all attempts, and the waits between them. One attempt never gets more."""
    idempotent: bool | None
    """True: it may be repeated, whatever its method. False: only if it was never sent. None: by method and key."""


class Sending(Asking, total=False):
    """Of calls that may have a body."""

    json: object
    content: bytes | str | Iterable[bytes] | None
    """A body of another kind. A stream is sent once, and not again."""
    idempotency_key: KeyLike | Literal[True] | None
    """True: a fresh one. None inside of work that has a key: one derived from it, the operation and the body."""


class AsyncSending(Asking, total=False):
    """The same for async clients, whose streams may be async."""

    json: object
    content: bytes | str | Iterable[bytes] | AsyncIterable[bytes] | None
    idempotency_key: KeyLike | Literal[True] | None
