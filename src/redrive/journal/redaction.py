"""Redaction: secrets never reach a record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "[redacted]"
SECRET_NAMES = frozenset(
    """authorization proxy-authorization cookie set-cookie password passwd pwd passphrase secret client-secret token
    access-token refresh-token id-token auth-token session-token security-token x-auth-token x-csrf-token csrf-token
    api-key apikey x-api-key access-key secret-key private-key signature credential credentials dsn connection-string""".split()
)
"""Names of fields that are hidden wherever they stand; `_`, `-`, spaces and case make no difference."""
_ENDINGS = ("-token", "-password", "-secret", "-api-key", "-private-key", "-secret-key", "-access-key", "-credentials")
_extra: frozenset[str] = frozenset()

_BEARER = re.compile(r"\b(Bearer|Basic|Token)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)([^/\s:@]*):[^/\s@]+@")
_PAIR = re.compile(r"""(["']?)([\w.-]{2,40})\1(\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&"'(){}\[\]]+)""")
LIMIT = 2_000
"""Characters of an error's message that are kept."""


def hide(*names: str) -> None:
    """Add names of fields that no record may carry. For the whole process; there is no way back."""
    global _extra  # noqa: PLW0603  # one set for the process, replaced as a whole
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of a secret field must be text: {name!r}")
    _extra = _extra | {_plain(name) for name in names}


def is_secret(name: str, /) -> bool:
    """Whether a field of this name is hidden."""
    plain = _plain(name)
    return plain in SECRET_NAMES or plain in _extra or plain.endswith(_ENDINGS)


def redacted(value: Any, /, name: str = "") -> Any:
    """The value without its secrets: hidden by name, inside mappings and sequences, and inside text."""
    if name and is_secret(name):
        return HIDDEN
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, Mapping):
        return {key: redacted(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(inner) for inner in value]
    return value


def redacted_text(text: str, /) -> str:
    """The text without credentials: bearer tokens, passwords in addresses, `name=value` of secret names."""
    if len(text) > LIMIT:
        text = text[:LIMIT] + "…"
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _USERINFO.sub(rf"\1:{HIDDEN}@", text)
    return _PAIR.sub(_hide_pair, text)


def _hide_pair(found: re.Match[str]) -> str:
    quote, name, sign, value = found.groups()
    if not is_secret(name) or value.startswith((HIDDEN, "Bearer", "Basic", "Token")):
        return found.group()
    return f"{quote}{name}{quote}{sign}{HIDDEN}"


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")
