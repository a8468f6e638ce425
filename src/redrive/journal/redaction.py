"""Redaction: secrets never reach a record.

Where it cannot be told whether something is a secret, it is hidden: a record that says too little is a nuisance, one that says
too much is an incident.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from datetime import date, time, timedelta
from functools import lru_cache
from typing import Any

HIDDEN = "[redacted]"
SECRET_NAMES = frozenset(
    """authorization cookie cookies password passwords passwd pwd passphrase secret secrets token jwt bearer signature
    credential credentials dsn api-key account-key access-key shared-key secret-key private-key signing-key encryption-key
    master-key connection-string""".split()
)
"""Names of fields that are hidden wherever they stand, alone or as the end of a longer name (`client_secret`, `accessToken`);
`_`, `-`, `.`, spaces and case make no difference."""
SHORT_NAMES = frozenset("auth pass otp sig sas".split())
"""Hidden as a word of their own only: `basic_auth` is, `bypass` is not."""
LIMIT = 2_000
"""Characters of an error's message that are kept."""
DEEPEST = 20
"""How deep a nested value is followed."""

_SEPARATORS = str.maketrans("", "", "_-. ")
_ENDINGS = tuple(name.translate(_SEPARATORS) for name in SECRET_NAMES)
_LAST_WORD = re.compile(r"[^_\-. ]*\Z")
_extra: frozenset[str] = frozenset()

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
_KNOWN = re.compile(
    r"""
    \beyJ[\w-]{5,}\.[\w-]*(?:\.[\w-]*)?                                       # a JSON Web Token
    | \b(?:sk|pk|rk)[-_][\w-]{16,}                                            # payment and LLM services
    | \b(?:gh[pousr]|glpat|github_pat|xox[abeoprs])[-_][\w-]{10,}             # code hosts, chat
    | \bAIza[\w-]{30,}                                                        # Google
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)


def hide(*names: str) -> None:
    """Add names of fields that no record may carry. For the whole process; there is no way back."""
    global _extra  # noqa: PLW0603  # one set for the process, replaced as a whole
    for name in names:
        if not isinstance(name, str) or not _plain(name):
            raise TypeError(f"the name of a secret field must be text: {name!r}")
    _extra = _extra | {_plain(name) for name in names}
    is_secret.cache_clear()


@lru_cache(1024)  # the same few names in every record
def is_secret(name: str, /) -> bool:
    """Whether a field of this name is hidden."""
    plain = _plain(name)
    if plain.endswith(_ENDINGS) or plain in _extra:
        return True
    last = _LAST_WORD.search(name.lower())
    return last is not None and (last[0] in SHORT_NAMES or last[0] in _extra)


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
        return {redacted_text(key): redacted(inner, key, depth=depth + 1) for key, inner in pairs}
    if isinstance(value, (list, tuple)):
        if len(value) == 2 and isinstance(value[0], (str, bytes)) and is_secret(_text(value[0])):
            return [_text(value[0]), HIDDEN]  # a header, as many libraries keep them
        return [redacted(inner, depth=depth + 1) for inner in value]
    if isinstance(value, Set):
        return [redacted(inner, depth=depth + 1) for inner in value]
    return redacted_text(_text(value))


def redacted_text(text: str, /) -> str:
    """The text without credentials: bearer tokens, passwords in addresses, values of secret names, tokens known by sight."""
    if text.isidentifier():
        return _KNOWN.sub(HIDDEN, text)
    if len(text) > 4 * LIMIT:
        # A secret that is cut in two may no longer look like one: the word at the cut goes too.
        text = text[: 4 * LIMIT].rsplit(None, 1)[0] + " …"
    if "://" in text and "@" in text:
        text = _USERINFO.sub(rf"\1:{HIDDEN}@", text)
        text = _WEB.sub(rf"\1{HIDDEN}@", text)
    text = _without_pairs(text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _SCHEME.sub(rf"\1 {HIDDEN}", text)
    text = _KNOWN.sub(HIDDEN, text)
    return text if len(text) <= LIMIT else text[:LIMIT] + "…"


def _without_pairs(text: str) -> str:
    pieces: list[str] = []
    done = 0
    for found in _NAME.finditer(text):
        name = found["name"]
        if found.start() < done or not is_secret(name):
            continue
        whole_line = found["quote"] is None and _plain(name).endswith(_HEADERS)
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


def _plain(name: str) -> str:
    return name.lower().translate(_SEPARATORS)
