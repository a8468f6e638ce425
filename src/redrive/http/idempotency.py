"""Which requests may be sent twice, and their idempotency keys."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any, Literal

from ..core.context import key_around, scope_around
from ..core.key import MAX_HEADER_CHARS, Key, KeyLike, header_safe, header_text

IDEMPOTENT_METHODS = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"))
"""Methods that RFC 9110 defines as idempotent. Requests with other methods need a key."""


def may_repeat(method: str, has_key: bool, /, *declared: bool | None) -> bool:
    """Return whether a request may be sent twice.

    The first declared setting that is not None decides, then the key and the method.
    """
    for setting in declared:
        if setting is not None:
            return setting
    return has_key or method in IDEMPOTENT_METHODS


def check_idempotent(idempotent: object, /) -> bool | None:
    """Return the value of an `idempotent=` option."""
    if idempotent is None or isinstance(idempotent, bool):
        return idempotent
    raise TypeError(
        f"idempotent= must be True, False, or None to decide by method and key, not {idempotent!r}"
    )


def check_generates_keys(idempotency_key: object, /) -> bool:
    """Return whether a client generates keys: the value of its `idempotency_key=` option."""
    if idempotency_key is None or isinstance(idempotency_key, bool):
        return bool(idempotency_key)
    raise TypeError(
        "idempotency_key= of a client must be True (a new key for each call) or None, "
        f"not {idempotency_key!r}"
    )


def key_header(key: KeyLike | Literal[True], /) -> str:
    """Return the header value of the caller's key. True creates a new key."""
    if key is True:
        return os.urandom(16).hex()
    if not isinstance(key, (Key, str)):
        raise TypeError(
            f"idempotency_key= must be a Key, its text, or True for a new key, not {key!r}"
        )
    text = header_safe(str(key))
    if not 0 < len(text) <= MAX_HEADER_CHARS:
        raise ValueError(
            f"an idempotency key has 1 to {MAX_HEADER_CHARS} characters; this one has {len(text)}"
        )
    return text


def derive_key(
    method: str, target: str, body: bytes | None, operation: str | None, /
) -> str | None:
    """Derive the key of a request from the key of the surrounding job or call.

    The key is the same in every attempt of the surrounding work. It differs between requests, so
    two intentionally equal requests need different operations, or explicit keys.

    Returns:
        None without a surrounding key, for idempotent methods, and for streams.
    """
    if method in IDEMPOTENT_METHODS or body is None:
        return None
    surrounding_key = key_around(scope_around())
    if surrounding_key is None:
        return None
    identity = b"\0".join((method.encode(), target.encode(), (operation or "").encode(), body))
    step = f"{operation or method.lower()}.{sha256(identity).hexdigest()[:16]}"
    return header_text(_key_of_step(surrounding_key, step))


def implicit_key(
    request: Any, body: bytes | None, operation: str | None, generates_keys: bool, /
) -> str | None:
    """Return the key of a request whose caller set none: derived, or a new one.

    `body` is None for a stream.
    """
    key = derive_key(request.method, request.url.raw_path.decode("ascii"), body, operation)
    return key_header(True) if key is None and generates_keys else key


def _key_of_step(key: KeyLike, step: str) -> KeyLike:
    if isinstance(key, str):
        try:
            key = Key.parse(key)
        except ValueError:
            return f"{key}.{step}"  # The user's key has another format.
    return key.step(step)
