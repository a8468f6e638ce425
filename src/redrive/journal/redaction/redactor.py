"""Redact values and texts: `redact` for structures, `redact_text` for text inside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from datetime import date, time, timedelta
from typing import Any

from .names import is_secret, may_name_a_secret, normalize_name
from .patterns import (
    HIDDEN,
    NAME_KEYS,
    VALUE_KEYS,
    redact_known_tokens,
    redact_patterns,
    redact_unnamed_values,
)
from .values import redact_values

MAX_TEXT_CHARS = 2_000
"""Characters of a text that are kept."""
MAX_DEPTH = 20
"""Levels of a nested value that are kept."""

# A name of one or two words, quoted or not, and a sign. `"name", "value"` is a header in a list.
_NAME = re.compile(
    r"""(?<![\w.-])(?P<name>[\w.-]++(?:[ ][\w.-]++)?)(?P<quote>\\*["'])?\s*(?:[:=]{1,2}>?|(?<=["']),)\s*"""
)
_VALUE = re.compile(
    r"""
    \[redacted\]
    | [bBrRuU]{0,2}(?P<quote>\\*["'])(?:(?!(?P=quote)).|(?<=\\)(?P=quote))*(?:(?P=quote)|\Z)  # in quotes, or cut off within
    | [\[({].*                                                                # a structure: all that follows
    | (?:[^\s&"'\[({]|["'](?=\w))+(?:[\[({].*)?                               # a word; with a bracket in it, all that follows
    """,
    re.VERBOSE | re.DOTALL,
)
_LINE = re.compile(r"[^\r\n]*")
_LINE_HEADERS = ("authorization", "cookie")
"""Headers whose values are lines, not words: `Cookie: a=1; session=2`."""

_BEARER = re.compile(
    r"""\b(Bearer)\s+
    (?!(?:tokens?|auth|authentication|authorization|scheme|credentials?|is|was|not|of|or|and|required|missing|invalid|expired)
        (?![\w~+/=-]) | \w+=["'])
    [^\s"']+?(?=[,;]?(?:[\s"']|\Z))""",
    re.VERBOSE | re.IGNORECASE,
)
# An ordinary word after one of these is text ("token expired"). Anything else is a credential.
_SCHEME = re.compile(
    r"""\b((?i:Basic|Token|ApiKey))\s+(?!(?:[A-Za-z]?[a-z]{0,18}|[A-Z]{1,12})[.,:;!?)"']*(?:\s|\Z))[\w.~+/=-]{4,}""",
    re.VERBOSE,
)
_WEB = re.compile(r"""\b(https?://)[^\s/?#"'<>]*@""", re.IGNORECASE)
_USERINFO = re.compile(r"""(?<=://)([^/\s:@\["'<>]*):(?!\d{1,5}(?:[/?\#\s,;)]|\Z))[^\s"'<>]*@""")


def redact(value: Any, /, name: str = "", *, depth: int = 0) -> Any:
    """Return the value without secrets: by name, inside mappings and sequences, and inside text.

    The result contains only numbers, times, texts, lists, and mappings with text keys. It shares no
    mutable object with the value.
    """
    if name and is_secret(name):
        return HIDDEN
    if isinstance(value, str):
        return redact_text(value)
    if value is None or isinstance(value, (int, float, date, time, timedelta)):
        return value
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        pairs = [(_text(key), inner) for key, inner in value.items()]
        if len(pairs) > 1 and _names_a_secret(pairs):
            pairs = [
                (key, HIDDEN if normalize_name(key) in VALUE_KEYS else inner)
                for key, inner in pairs
            ]
        return {redact_text(key): redact(inner, key, depth=depth + 1) for key, inner in pairs}
    if isinstance(value, (list, tuple)):
        if (
            len(value) == 2
            and isinstance(value[0], (str, bytes))
            and _is_secret_before_a_value(_text(value[0]))
        ):
            return [_text(value[0]), HIDDEN]  # a header: many libraries use pairs
        # The value of a secret command-line option is the next item.
        follows_flag = [False, *map(_is_secret_flag, value)]
        return [
            HIDDEN if is_value else redact(inner, depth=depth + 1)
            for is_value, inner in zip(follows_flag, value, strict=False)
        ]
    if isinstance(value, Set):
        return [redact(inner, depth=depth + 1) for inner in value]
    return redact_text(_text(value))


def redact_text(text: str, /) -> str:
    """Return the text without tokens, passwords in addresses, and values of secret names.

    At most `MAX_TEXT_CHARS` characters are kept.
    """
    text = redact_values(text, HIDDEN)
    if text.isidentifier():
        return redact_values(redact_known_tokens(text), HIDDEN, names=True)
    if len(text) > 4 * MAX_TEXT_CHARS:
        # Drop the last word, because half a secret may no longer look like one.
        text = text[: 4 * MAX_TEXT_CHARS].rsplit(None, 1)[0] + " …"
    if "://" in text and "@" in text:
        text = _USERINFO.sub(rf"\1:{HIDDEN}@", text)
        text = _WEB.sub(rf"\1{HIDDEN}@", text)
    text = redact_unnamed_values(text)
    if may_name_a_secret(text):
        text = _redact_pairs(redact_patterns(text))
        text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _SCHEME.sub(rf"\1 {HIDDEN}", text)
    text = redact_values(redact_known_tokens(text), HIDDEN, names=True)
    return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "…"


def _redact_pairs(text: str) -> str:
    """Redact values that follow a secret name: `password=...`, `"token": "..."`."""
    pieces: list[str] = []
    position = 0
    for match in _NAME.finditer(text):
        name = match["name"]
        if match.start() < position or not _is_secret_before_a_value(name):
            continue
        is_header = match["quote"] is None and normalize_name(name).endswith(_LINE_HEADERS)
        value = (_LINE if is_header else _VALUE).match(text, match.end())
        if value is not None:
            pieces += text[position : match.end()], HIDDEN
            position = value.end()
    return "".join((*pieces, text[position:])) if pieces else text


def _text(value: object) -> str:
    try:
        return value.decode("latin-1") if isinstance(value, (bytes, bytearray)) else str(value)
    except Exception:  # The user's `__str__` raised.
        return f"({type(value).__name__} that cannot be read)"


def _is_secret_before_a_value(name: str) -> bool:
    """Return whether a value after this name is secret.

    Of two words, only the last counts: `API key: …` has a value, `token expired: …` has none.
    """
    first, _, second = name.partition(" ")
    if not second:
        return is_secret(name)
    if " " in second:
        return False
    return is_secret(second) or (
        normalize_name(second) in ("key", "keys", "string") and is_secret(f"{first}_{second}")
    )


def _names_a_secret(pairs: list[tuple[str, Any]]) -> bool:
    """Return whether a mapping is a pair itself, such as {"name": "password", "value": "…"}."""
    return any(
        isinstance(inner, str) and normalize_name(key) in NAME_KEYS and is_secret(inner)
        for key, inner in pairs
    )


def _is_secret_flag(item: object) -> bool:
    """Return whether an item of a command line is the name of a secret option."""
    return isinstance(item, str) and item[:1] == "-" and "=" not in item and is_secret(item)
