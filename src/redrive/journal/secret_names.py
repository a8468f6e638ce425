"""Names of fields that hold secrets. Matched anywhere in a name, with exceptions for names that only describe a secret."""

from __future__ import annotations

import re
from functools import lru_cache

SECRET_NAMES = frozenset(
    """authorization cookie password passwd passphrase passcode pwd secret token jwt bearer signature credential csrf xsrf
    api-key account-key access-key shared-key secret-key private-key signing-key encryption-key master-key session-key ssh-key
    storage-key auth-key connection-string""".split()
)
"""Hidden wherever a name contains one of these (`client_secret`, `accessToken2`, `secretString`); `_`, `-`, `.`, spaces and
case make no difference."""
SHORT_NAMES = frozenset("auth pass otp sig sas dsn cvv cvc".split())
"""Hidden as the last word of a name only: `basic_auth` is, `author` and `bypass` are not."""
DESCRIBING = frozenset(
    """count counts limit limits type types length len size usage used budget ttl expiry expires expired expiration policy
    required enabled valid invalid missing status attempts rate minute at in error errors exception exceptions warning
    failure failed fault rejected refused file path dir folder mode method scheme algorithm version field fields""".split()
)
"""Last words of names that say something about a secret (`token_count`, `password_changed_at`, `InvalidTokenError`)."""
COUNTED = frozenset("max min prompt completion total input output cached reasoning num used remaining audio text".split())
"""Words before `tokens` where tokens are units of text."""

_SEPARATORS = str.maketrans("", "", "_-. :")
_PLAIN = "|".join(sorted(name.translate(_SEPARATORS) for name in SECRET_NAMES))
_CONTAINED = re.compile(rf"(?!secretar|passwordless|tokeni[sz]|cookiecutter)(?:{_PLAIN})")
_ENDING = re.compile(rf"(?:{_PLAIN}|(?:db|user|smtp|pg|ftp|admin|root|mail|redis|my|sql|ssh)pass)s?\d*\Z")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
"""A word of a name: `apiKey`, `APIKey`, `api_key` and `api-key2` have two."""
STEMS = tuple("auth cookie pass pwd secret token jwt bearer cred srf key string otp sig sas dsn cvv cvc".split())
"""Some part of every name above: a text without one needs no closer look."""
LONGEST = 200
"""Characters. A longer one is a text, not a name."""
_NO_NAME = frozenset("=?/\n<>")
_extra: frozenset[str] = frozenset()


def hide(*names: str) -> None:
    """Add names of fields that no record may contain.

    This applies to the whole process and cannot be undone.

    Args:
        names: Names of fields.
    """
    global _extra  # noqa: PLW0603  # one set for the process, replaced as a whole
    for name in names:
        if not isinstance(name, str) or not plain(name):
            raise TypeError(f"the name of a secret field must be text: {name!r}")
    added = _extra | {plain(name) for name in names}
    if added != _extra:
        _extra = added
        is_secret.cache_clear()


def hidden_names() -> frozenset[str]:
    """Names that were added, in their plain form."""
    return _extra


@lru_cache(2048)  # the same few names in every record
def is_secret(name: str, /) -> bool:
    """Whether a field of this name is hidden."""
    if len(name) > LONGEST or not _NO_NAME.isdisjoint(name):
        return False
    joined = plain(name)
    words = [word.lower() for word in _WORD.findall(name)]
    if _extra and (joined in _extra or _has_extra(words)):
        return True
    last = words[-1] if words else ""
    if last in SHORT_NAMES or _ENDING.search(joined):
        return not (last == "tokens" and len(words) > 1 and words[-2] in COUNTED)
    return last not in DESCRIBING and _CONTAINED.search(joined) is not None


def may_name_a_secret(text: str, /) -> bool:
    """Whether there may be a secret's name in a text. Quick: most texts have none."""
    if _extra:
        return True
    lower = text.lower()
    for stem in STEMS:  # noqa: SIM110  # `any` takes twice as long
        if stem in lower:
            return True
    return False


def plain(name: str, /) -> str:
    """A name in lower case, without separators."""
    return name.lower().translate(_SEPARATORS)


def _has_extra(words: list[str]) -> bool:
    """Whether some words in a row are one of the added names."""
    for start in range(len(words)):
        run = ""
        for word in words[start : start + 6]:
            run += word
            if run in _extra or run.removesuffix("s") in _extra:
                return True
    return False
