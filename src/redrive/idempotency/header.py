"""The Idempotency-Key header: a string of RFC 8941 (`"8e03978e"`), or the same without quotes, as most clients send it."""

from __future__ import annotations

import re

MAX_LENGTH = 255
_QUOTED = re.compile(rb'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"(?:[ \t]*;.*)?')
_BARE = re.compile(rb"[\x21\x23-\x2b\x2d-\x3a\x3c-\x7e]+")


class BadHeader(ValueError):
    """The header is not one that a key can be read from; the text says why."""


def key_in(values: list[bytes], /) -> str | None:
    """The key that a client sent; None: it sent none."""
    if not values:
        return None
    if len(values) > 1:
        raise BadHeader("There is more than one Idempotency-Key header.")
    value = values[0].strip(b" \t")
    quoted = _QUOTED.fullmatch(value)
    if quoted is not None:
        found = re.sub(rb"\\(.)", rb"\1", quoted[1])
    elif _BARE.fullmatch(value) is not None:
        found = value
    else:
        raise BadHeader('The Idempotency-Key header must be a string of printable ASCII, such as "8e03978e-40d5-43e8".')
    if not found or len(found) > MAX_LENGTH:
        raise BadHeader(f"An idempotency key has 1 to {MAX_LENGTH} characters; this one has {len(found)}.")
    return found.decode("ascii")
