"""HTTP requests as the middleware sees them: the key in the header, the caller, the fingerprint."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

from .fingerprint import fingerprint
from .response import Headers

HEADER = b"idempotency-key"
MAX_KEY_CHARS = 255

_QUOTED_KEY = re.compile(rb'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"(?:[ \t]*;.*)?')
_BARE_KEY = re.compile(rb"[\x21\x23-\x2b\x2d-\x3a\x3c-\x7e]+")
_IDENTIFYING = re.compile(
    rb"host|cookie|auth|token|key|secret|session|user|tenant|account|client.?id|customer|org|team|actor"
)
_ANONYMOUS = frozenset(
    (HEADER, b"user-agent", b"x-csrf-token", b"x-csrftoken", b"x-xsrf-token", b"origin")
)
"""Headers that match `_IDENTIFYING` by chance: they name no caller, and may differ in a retry."""
_CREDENTIALS = (b"cookie", b"key", b"token", b"session", b"secret")
_BOUNDARY = re.compile(
    rb'\s*multipart/[^;]+;.*?boundary="?([^";,]{1,70})"?', re.IGNORECASE | re.DOTALL
)


class BadHeader(ValueError):
    """The header has no valid key. The message says why."""


def key_in_header(values: list[bytes], /) -> str | None:
    """Return the key in the values of the header. None: the client sent none.

    The draft defines a quoted string of RFC 8941 (`"8e03978e"`). Most clients send it without
    quotes, which is accepted too.

    Raises:
        BadHeader: The key is not valid.
    """
    if not values:
        return None
    if len(values) > 1:
        raise BadHeader("There is more than one Idempotency-Key header.")
    value = values[0].strip(b" \t")
    quoted = _QUOTED_KEY.fullmatch(value)
    if quoted is not None:
        key = re.sub(rb"\\(.)", rb"\1", quoted[1])
    elif _BARE_KEY.fullmatch(value) is not None:
        key = value
    else:
        raise BadHeader(
            "The Idempotency-Key header must be a string of printable ASCII, such as "
            '"8e03978e-40d5-43e8".'
        )
    if not key or len(key) > MAX_KEY_CHARS:
        raise BadHeader(
            f"An idempotency key has 1 to {MAX_KEY_CHARS} characters; this one has {len(key)}."
        )
    return key.decode("ascii")


class RequestHead(NamedTuple):
    """The head of a request, in one form for ASGI and WSGI. Immutable: anything may share it."""

    method: str
    path: str
    """The whole path, decoded."""
    raw_path: bytes
    """The whole path as it is compared."""
    query: bytes
    headers: Headers
    """Names in lower case."""
    identities: tuple[bytes, ...] = ()
    """What the server knows about the caller, such as the name in its certificate."""

    def values(self, name: bytes, /) -> list[bytes]:
        """Return the values of all headers with this name."""
        return [value for header, value in self.headers if header == name]

    def identifying_headers(self) -> Headers:
        """Return the headers that may identify a user."""
        return sorted(
            (name, value)
            for name, value in self.headers
            if _IDENTIFYING.search(name) is not None and name not in _ANONYMOUS
        )

    def has_credentials(self) -> bool:
        """Return whether the request carries a cookie or an API key."""
        names = [name for name, _ in self.identifying_headers()]
        return any(word in name for name in names for word in _CREDENTIALS)

    def caller_parts(self) -> list[bytes]:
        """Return everything that may identify the caller, to compare it."""
        headers = [part for header in self.identifying_headers() for part in header]
        return [*headers, *self.identities]

    def hosts(self) -> list[bytes]:
        """Return the names of the host that the client called."""
        return [*self.values(b"host"), *self.values(b"x-forwarded-host")]

    def fingerprint(self, body: bytes, caller: Iterable[bytes], /) -> bytes:
        """Return the hash of everything that a retry repeats."""
        content_type = b",".join(self.values(b"content-type"))
        boundary = _BOUNDARY.match(content_type)
        if boundary is not None:
            # Clients choose a new boundary for each attempt.
            body = body.replace(b"--" + boundary[1], b"--")
            content_type = content_type.replace(boundary[1], b"")
        target = (self.method.upper().encode(), self.raw_path, self.query)
        digest = hashlib.sha256()
        for part in (*target, content_type, *caller, body):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.digest()


def fingerprint_of_choice(compared: object, caller: list[bytes], /) -> bytes | None:
    """Return the hash of the part of a request that the user's own `request=` chose."""
    return fingerprint([repr(caller), repr(fingerprint(compared))])
