"""The idempotency key of a request, and which methods need one."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Literal

from ..core.context import key_around, scope_around
from ..core.key import MAX_HEADER, Key, KeyLike, header_safe, header_text

REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"))
"""Methods that mean the same when they are sent twice (RFC 9110); all others need a key."""


def may_repeat(method: str, keyed: bool, /, *declared: bool | None) -> bool:
    """Whether a request may be sent twice: as declared (the first that is not None), else by its method and its key."""
    for said in declared:
        if said is not None:
            return said
    return keyed or method in REPEATABLE


def checked(idempotent: object, /) -> bool | None:
    """The value of an `idempotent=` option."""
    if idempotent is None or isinstance(idempotent, bool):
        return idempotent
    raise TypeError(f"idempotent= must be True, False, or None to decide by method and key, not {idempotent!r}")


def fresh(idempotency_key: object, /) -> bool:
    """Whether a client generates keys: the value of its `idempotency_key=` option."""
    if idempotency_key is None or isinstance(idempotency_key, bool):
        return bool(idempotency_key)
    raise TypeError(f"idempotency_key= of a client must be True (a new key for each call) or None, not {idempotency_key!r}")


def told(key: KeyLike | Literal[True], /) -> str:
    """The text of a key that the caller gave. True: a fresh one."""
    if key is True:
        return os.urandom(16).hex()
    if not isinstance(key, (Key, str)):
        raise TypeError(f"idempotency_key= must be a Key, its text, or True for a new key, not {key!r}")
    text = header_safe(str(key))
    if not 0 < len(text) <= MAX_HEADER:
        raise ValueError(f"an idempotency key has 1 to {MAX_HEADER} characters; this one has {len(text)}")
    return text


def derived(method: str, target: str, body: bytes | None, operation: str | None, /) -> str | None:
    """The key of this request as a part of the work around it: the same in every attempt of it, another for another request.

    None where there is no work with a key around, where the method needs none, and where the body is not known beforehand.
    Two requests that are equal on purpose need operations, or keys, of their own.
    """
    if method in REPEATABLE or body is None:
        return None
    around = key_around(scope_around())
    if around is None:
        return None
    digest = sha256(b"\0".join((method.encode(), target.encode(), (operation or "").encode(), body))).hexdigest()[:16]
    step = f"{operation or method.lower()}.{digest}"
    return header_text(_step(around, step))


def _step(around: KeyLike, step: str) -> KeyLike:
    if isinstance(around, str):
        try:
            around = Key.parse(around)
        except ValueError:
            return f"{around}.{step}"  # a key of the user's own form
    return around.step(step)
