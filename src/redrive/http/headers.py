"""Headers that Redrive adds to each request, and checks of the headers that the caller passes.

Among them is the idempotency key, which decides whether a request may be sent twice.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal

from ..core.context import IDS, key_around, scope_around, shorten_id
from ..core.key import MAX_HEADER_CHARS, Key, KeyLike, header_safe, header_text

REQUEST_ID = "x-request-id"
IDEMPOTENCY_KEY = "idempotency-key"
USER = "x-user-id"
ATTEMPT = "x-attempt"
AUTHORIZATION = "authorization"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")


def check_value(name: str, value: object, /) -> str:
    """Return a header value that is printable ASCII.

    Errors do not quote the value, because it may be a secret.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {type(value).__name__}")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"{name} must be printable ASCII without spaces around it, as headers are")
    return value


def check_headers(headers: Mapping[str, str] | None, /) -> dict[str, str]:
    """Return the caller's headers by lower-case name."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise TypeError(
            f"headers= must be a mapping of names to text, not {type(headers).__name__}"
        )
    checked = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"headers= has an invalid name: {name!r}")
        checked[name.lower()] = check_value(f"header {name!r}", value) if value != "" else ""
    return checked


def current_request_id() -> str:
    """Return the id set by `correlate(request_id=...)`, or a new id."""
    request_id = IDS.get().get("request_id")
    if request_id is None:
        return os.urandom(16).hex()
    request_id = shorten_id(request_id)  # Jobs stored by older versions may have longer ids.
    return request_id if _VALUE.fullmatch(request_id) else os.urandom(16).hex()


def trace_headers() -> dict[str, str]:
    """Return `traceparent` and `tracestate` of the current OpenTelemetry span, if there is one."""
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return {}
    try:
        context = opentelemetry.get_current_span().get_span_context()
        if not context.is_valid:
            return {}
        ids = f"{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        headers = {"traceparent": f"00-{ids}"}
        state = context.trace_state.to_header() if context.trace_state else ""
        return {**headers, "tracestate": state} if state else headers
    except Exception:  # A custom tracer must not prevent the call.
        return {}


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
