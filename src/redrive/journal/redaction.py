"""Redaction: secrets never reach a record.

Where it cannot be told whether something is a secret, it is hidden: a record that says too little is a nuisance, one that says
too much is an incident.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from datetime import date, time, timedelta
from typing import Any

from .secret_names import SECRET_NAMES, SHORT_NAMES, hide, is_secret, may_name_a_secret, plain
from .secret_shapes import HIDDEN, NAME_KEYS, VALUE_KEYS, without_known_tokens, without_nameless, without_shapes
from .secret_values import without_values

__all__ = ["DEEPEST", "HIDDEN", "LIMIT", "SECRET_NAMES", "SHORT_NAMES", "hide", "is_secret", "redacted", "redacted_text"]

LIMIT = 2_000
"""Characters of an error's message that are kept."""
DEEPEST = 20
"""How deep a nested value is followed."""

# What stands before a value: a name of one or two words, quoted or not, and a sign. `"name", "value"` is a header in a list.
_NAME = re.compile(r"""(?<![\w.-])(?P<name>[\w.-]++(?:[ ][\w.-]++)?)(?P<quote>\\*["'])?\s*(?:[:=]{1,2}>?|(?<=["']),)\s*""")
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
_HEADERS = ("authorization", "cookie")
"""Their values are lines, not words: `Cookie: a=1; session=2`."""

_BEARER = re.compile(
    r"""\b(Bearer)\s+
    (?!(?:tokens?|auth|authentication|authorization|scheme|credentials?|is|was|not|of|or|and|required|missing|invalid|expired)
        (?![\w~+/=-]) | \w+=["'])
    [^\s"']+?(?=[,;]?(?:[\s"']|\Z))""",
    re.VERBOSE | re.IGNORECASE,
)
# After one of these, a word is a word ("token expired"); what does not look like one is a credential.
_SCHEME = re.compile(
    r"""\b((?i:Basic|Token|ApiKey))\s+(?!(?:[A-Za-z]?[a-z]{0,18}|[A-Z]{1,12})[.,:;!?)"']*(?:\s|\Z))[\w.~+/=-]{4,}""", re.VERBOSE
)
_WEB = re.compile(r"""\b(https?://)[^\s/?#"'<>]*@""", re.IGNORECASE)
_USERINFO = re.compile(r"""(?<=://)([^/\s:@\["'<>]*):(?!\d{1,5}(?:[/?\#\s,;)]|\Z))[^\s"'<>]*@""")


def redacted(value: Any, /, name: str = "", *, depth: int = 0) -> Any:
    """The value without its secrets: hidden by name, inside mappings and sequences, and inside text.

    What is left are numbers, moments, text, lists, and mappings with text as keys: nothing that is alive or can change behind
    a record's back.
    """
    if name and is_secret(name):
        return HIDDEN
    if isinstance(value, str):
        return redacted_text(value)
    if value is None or isinstance(value, (int, float, date, time, timedelta)):
        return value
    if depth >= DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        pairs = [(_text(key), inner) for key, inner in value.items()]
        if len(pairs) > 1 and _names_a_secret(pairs):
            pairs = [(key, HIDDEN if plain(key) in VALUE_KEYS else inner) for key, inner in pairs]
        return {redacted_text(key): redacted(inner, key, depth=depth + 1) for key, inner in pairs}
    if isinstance(value, (list, tuple)):
        if len(value) == 2 and isinstance(value[0], (str, bytes)) and _is_secret_before_a_value(_text(value[0])):
            return [_text(value[0]), HIDDEN]  # a header, as many libraries keep them
        follows = [False, *map(_is_flag, value)]
        return [HIDDEN if after else redacted(inner, depth=depth + 1) for after, inner in zip(follows, value, strict=False)]
    if isinstance(value, Set):
        return [redacted(inner, depth=depth + 1) for inner in value]
    return redacted_text(_text(value))


def redacted_text(text: str, /) -> str:
    """The text without credentials: bearer tokens, passwords in addresses, values of secret names, tokens known by sight."""
    text = without_values(text, HIDDEN)
    if text.isidentifier():
        return without_values(without_known_tokens(text), HIDDEN, names=True)
    if len(text) > 4 * LIMIT:
        # A secret that is cut in two may no longer look like one: the word at the cut goes too.
        text = text[: 4 * LIMIT].rsplit(None, 1)[0] + " …"
    if "://" in text and "@" in text:
        text = _USERINFO.sub(rf"\1:{HIDDEN}@", text)
        text = _WEB.sub(rf"\1{HIDDEN}@", text)
    text = without_nameless(text)
    if may_name_a_secret(text):
        text = _without_pairs(without_shapes(text))
        text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _SCHEME.sub(rf"\1 {HIDDEN}", text)
    text = without_values(without_known_tokens(text), HIDDEN, names=True)
    return text if len(text) <= LIMIT else text[:LIMIT] + "…"


def _without_pairs(text: str) -> str:
    pieces: list[str] = []
    done = 0
    for found in _NAME.finditer(text):
        name = found["name"]
        if found.start() < done or not _is_secret_before_a_value(name):
            continue
        whole_line = found["quote"] is None and plain(name).endswith(_HEADERS)
        value = (_LINE if whole_line else _VALUE).match(text, found.end())
        if value is not None:
            pieces += text[done : found.end()], HIDDEN
            done = value.end()
    return "".join((*pieces, text[done:])) if pieces else text


def _text(value: object) -> str:
    try:
        return value.decode("latin-1") if isinstance(value, (bytes, bytearray)) else str(value)
    except Exception:  # whatever an object does, the record goes on without it
        return f"({type(value).__name__} that cannot be read)"


def _is_secret_before_a_value(name: str) -> bool:
    """Of two words that are not one name, only the end counts: `API key: …` has a value, `token expired: …` has none."""
    first, _, second = name.partition(" ")
    if not second:
        return is_secret(name)
    if " " in second:
        return False
    return is_secret(second) or (plain(second) in ("key", "keys", "string") and is_secret(f"{first}_{second}"))


def _names_a_secret(pairs: list[tuple[str, Any]]) -> bool:
    """Whether a mapping is a pair itself, such as {"name": "password", "value": "…"}."""
    return any(isinstance(inner, str) and plain(key) in NAME_KEYS and is_secret(inner) for key, inner in pairs)


def _is_flag(item: object) -> bool:
    """Whether an item of a command line is the name of a secret option: its value is the next one."""
    return isinstance(item, str) and item[:1] == "-" and "=" not in item and is_secret(item)
