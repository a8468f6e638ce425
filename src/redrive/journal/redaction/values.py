"""Secret values that were passed to Redrive: passwords in addresses, `auth=`, storage options.

They are redacted wherever they occur, in the whole process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .addresses import address_secrets
from .names import is_secret

MIN_SECRET_CHARS = 6
"""A shorter value occurs by chance in too many texts."""
MAX_SECRETS = 200
"""Values that are remembered. The oldest are dropped first."""

_values: dict[str, None] = {}
_longest_first: tuple[str, ...] = ()
_secret_names: tuple[str, ...] = ()
"""Values that are also the name of a secret, such as `password`."""


def keep_secret(*values: object) -> None:
    """Redact these values in every record and stored error from now on. Any thread may call it."""
    # Replaced as a whole, so readers need no lock.
    global _values, _longest_first, _secret_names  # noqa: PLW0603
    new: dict[str, None] = {}
    for value in values:
        text = bytes(value).decode("latin-1") if isinstance(value, (bytes, bytearray)) else value
        if isinstance(text, str) and len(text) >= MIN_SECRET_CHARS and not text.isspace():
            new |= dict.fromkeys(_spellings(text))
    if new.keys() <= _values.keys():
        return
    remembered = {**_values, **new}
    for oldest in list(remembered)[: max(0, len(remembered) - MAX_SECRETS)]:
        del remembered[oldest]
    _values = remembered
    ordered = sorted(remembered, key=len, reverse=True)  # A longer value may contain a shorter one.
    _secret_names = tuple(value for value in ordered if is_secret(value))
    _longest_first = tuple(value for value in ordered if value not in _secret_names)


def forget_values() -> None:
    """Stop redacting all values. For tests."""
    global _values, _longest_first, _secret_names
    _values, _longest_first, _secret_names = {}, (), ()


def keep_address_secret(url: object, /) -> None:
    """Redact the password of an address from now on, even if the address is malformed."""
    if isinstance(url, str) and ("@" in url or "=" in url):
        keep_secret(*address_secrets(url))


def keep_options_secret(options: Mapping[str, Any], /) -> None:
    """Redact the values of options with secret names, and passwords in addresses, from now on."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            keep_options_secret(value)
        elif is_secret(str(name)):
            keep_secret(value)
        keep_address_secret(value)


def redact_values(text: str, hidden: str, /, *, names: bool = False) -> str:
    """Return the text with each remembered value replaced.

    names: replace the values that are also names of secrets. Do this last, because a name that is
    replaced no longer marks the value beside it.
    """
    for value in _secret_names if names else _longest_first:
        if value in text:
            text = _replace(text, value, hidden)
    return text


def _replace(text: str, value: str, hidden: str) -> str:
    if not value.isalpha():
        return text.replace(value, hidden)
    # The password `postgres` must not redact half of `postgresql`.
    return re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", lambda _: hidden, text)


def _spellings(value: str) -> list[str]:
    """Return the value as it is, and as URLs, JSON and `repr` write it."""
    # Loaded with the first secret, to keep the first failure of a program cheap.
    from json import dumps  # noqa: PLC0415
    from urllib.parse import quote, quote_plus, unquote  # noqa: PLC0415

    spellings = (
        value,
        quote(value, safe=""),
        quote_plus(value),
        unquote(value),
        dumps(value)[1:-1],
        repr(value)[1:-1],
    )
    return [spelling for spelling in spellings if len(spelling) >= MIN_SECRET_CHARS]
