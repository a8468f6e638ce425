"""Values that Redrive was given as secrets: passwords in addresses, `auth=`, storage options, secrets of the console.

They are hidden wherever they occur, whatever stands around them. For the whole process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHORTEST = 6
"""Characters. A shorter value occurs by chance in too many texts."""
MOST = 200
"""Values that are kept; the oldest ones are dropped first."""

_values: dict[str, None] = {}
_ordered: tuple[str, ...] = ()
_names: tuple[str, ...] = ()
"""Those that are the name of a secret too, such as `password`."""


def keep_secret(*values: object) -> None:
    """Hide these values in every record and stored error from now on. Any thread may call it."""
    global _values, _ordered, _names  # noqa: PLW0603  # replaced as a whole, so that readers need no lock
    new: dict[str, None] = {}
    for value in values:
        text = bytes(value).decode("latin-1") if isinstance(value, (bytes, bytearray)) else value
        if isinstance(text, str) and len(text) >= SHORTEST and not text.isspace():
            new |= dict.fromkeys(_spellings(text))
    if new.keys() <= _values.keys():
        return
    kept = {**_values, **new}
    for oldest in list(kept)[: max(0, len(kept) - MOST)]:
        del kept[oldest]
    _values = kept
    from .secret_names import is_secret  # noqa: PLC0415  # regular expressions: not without a secret

    ordered = sorted(kept, key=len, reverse=True)  # a longer one may contain a shorter one
    _names = tuple(each for each in ordered if is_secret(each))
    _ordered = tuple(each for each in ordered if each not in _names)


def forget_values() -> None:
    """Hide none of the values any more. For tests."""
    global _values, _ordered, _names  # likewise
    _values, _ordered, _names = {}, (), ()


def keep_address_secret(url: object, /) -> None:
    """Hide the password of an address, also of one that is wrongly written."""
    if isinstance(url, str) and ("@" in url or "=" in url):
        from .secret_address import secrets_in  # noqa: PLC0415  # regular expressions: not without an address

        keep_secret(*secrets_in(url))


def keep_options_secret(options: Mapping[str, Any], /) -> None:
    """Hide the values of options with secret names, and the passwords of addresses among them."""
    from .secret_names import is_secret  # noqa: PLC0415  # likewise

    for name, value in options.items():
        if isinstance(value, Mapping):
            keep_options_secret(value)
        elif is_secret(str(name)):
            keep_secret(value)
        keep_address_secret(value)


def without_values(text: str, hidden: str, /, *, names: bool = False) -> str:
    """The text without the values that were given.

    names: those that are the name of a secret too. They go last: a name that is hidden no longer marks the value beside it.
    """
    for value in _names if names else _ordered:
        if value in text:
            text = _replaced(text, value, hidden)
    return text


def _replaced(text: str, value: str, hidden: str) -> str:
    if not value.isalpha():
        return text.replace(value, hidden)
    # `postgres` as a password must not hide half of `postgresql`.
    import re  # noqa: PLC0415  # rare

    return re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", lambda _: hidden, text)


def _spellings(value: str) -> list[str]:
    """The value as it is, as addresses write it, and as JSON and `repr` write it."""
    from json import dumps  # noqa: PLC0415  # only where there is a secret
    from urllib.parse import quote, quote_plus, unquote  # noqa: PLC0415

    written = (value, quote(value, safe=""), quote_plus(value), unquote(value), dumps(value)[1:-1], repr(value)[1:-1])
    return [each for each in written if len(each) >= SHORTEST]
