"""Names of fields that hold secrets.

A name is matched anywhere in the name of a field, except in names that only describe a secret.
"""

from __future__ import annotations

import re
from functools import lru_cache

SECRET_NAMES = frozenset(
    """authorization cookie password passwd passphrase passcode pwd secret token jwt bearer
    signature credential csrf xsrf api-key account-key access-key shared-key secret-key private-key
    signing-key encryption-key master-key session-key ssh-key storage-key auth-key
    connection-string""".split()
)
"""Hidden anywhere in a name: `client_secret`, `accessToken2`, `secretString`.

Case, spaces, `_`, `-` and `.` make no difference.
"""
SHORT_NAMES = frozenset("auth pass otp sig sas dsn cvv cvc".split())
"""Hidden as the last word of a name only: `basic_auth` is, `author` and `bypass` are not."""
DESCRIPTIVE_WORDS = frozenset(
    """count counts limit limits type types length len size usage used budget ttl expiry expires
    expired expiration policy required enabled valid invalid missing status attempts rate minute at
    in error errors exception exceptions warning failure failed fault rejected refused file path
    dir folder mode method scheme algorithm version field fields""".split()
)
"""Last words of names that describe a secret: `token_count`, `password_changed_at`."""
TOKEN_COUNT_WORDS = frozenset(
    """max min prompt completion total input output cached reasoning num used remaining audio
    text""".split()
)
"""Words before `tokens` that make them units of text."""

_SEPARATORS = str.maketrans("", "", "_-. :")
_NORMALIZED = "|".join(sorted(name.translate(_SEPARATORS) for name in SECRET_NAMES))
_CONTAINED = re.compile(rf"(?!secretar|passwordless|tokeni[sz]|cookiecutter)(?:{_NORMALIZED})")
_ENDING = re.compile(
    rf"(?:{_NORMALIZED}|(?:db|user|smtp|pg|ftp|admin|root|mail|redis|my|sql|ssh)pass)s?\d*\Z"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
"""A word of a name. `apiKey`, `APIKey`, `api_key` and `api-key2` have two."""
_STEMS = tuple(
    """auth cookie pass pwd secret token jwt bearer cred srf key string otp sig sas dsn cvv
    cvc""".split()
)
"""Each name above contains one of these. A text without any needs no pattern."""
MAX_NAME_CHARS = 200
"""A longer name is a text."""
_NOT_IN_NAMES = frozenset("=?/\n<>")
_added_names: frozenset[str] = frozenset()


def hide(*names: str) -> None:
    """Add names of fields that no record may contain.

    This applies to the whole process and cannot be undone.

    Args:
        names: Names of fields.
    """
    global _added_names  # noqa: PLW0603  # replaced as a whole, so readers need no lock
    for name in names:
        if not isinstance(name, str) or not normalize_name(name):
            raise TypeError(f"the name of a secret field must be text: {name!r}")
    all_names = _added_names | {normalize_name(name) for name in names}
    if all_names != _added_names:
        _added_names = all_names
        is_secret.cache_clear()


@lru_cache(2048)  # Records repeat the same few names.
def is_secret(name: str, /) -> bool:
    """Return whether the value of a field with this name is redacted."""
    if len(name) > MAX_NAME_CHARS or not _NOT_IN_NAMES.isdisjoint(name):
        return False
    normalized = normalize_name(name)
    words = [word.lower() for word in _WORD.findall(name)]
    if _added_names and (normalized in _added_names or _has_added_name(words)):
        return True
    last = words[-1] if words else ""
    if last in SHORT_NAMES or _ENDING.search(normalized):
        return not (last == "tokens" and len(words) > 1 and words[-2] in TOKEN_COUNT_WORDS)
    return last not in DESCRIPTIVE_WORDS and _CONTAINED.search(normalized) is not None


def may_name_a_secret(text: str, /) -> bool:
    """Return whether a text may contain the name of a secret. Fast, because most do not."""
    if _added_names:
        return True
    lower = text.lower()
    for stem in _STEMS:  # noqa: SIM110  # `any` is half as fast
        if stem in lower:
            return True
    return False


def normalize_name(name: str, /) -> str:
    """Return a name in lower case, without separators."""
    return name.lower().translate(_SEPARATORS)


def _has_added_name(words: list[str]) -> bool:
    """Return whether consecutive words are one of the added names."""
    for start in range(len(words)):
        run = ""
        for word in words[start : start + 6]:
            run += word
            if run in _added_names or run.removesuffix("s") in _added_names:
                return True
    return False
