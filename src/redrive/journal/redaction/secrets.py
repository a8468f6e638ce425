"""Secrets that Redrive knows: names of fields, values that were passed to it, and addresses.

A name is matched anywhere in the name of a field, except in names that only describe a secret.
Values (passwords in addresses, `auth=`, storage options) are redacted wherever they occur, in the
whole process. An error about an address must not print its password, even if it is malformed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

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


HIDDEN = "***"
_SCHEME = re.compile(
    r"\A\s*(?:[A-Za-z][\w+.-]*:/{2,3}"
    r"|(?i:postgres(?:ql)?|redis|rediss|valkeys?|sqlite|https?|s3|sftp|amqps?|mysql)(?:\+\w+)?:/?"
    r"|/{2,3})"
)
_CONNINFO = re.compile(r"\s*\w+\s*=")
_USER = re.compile(r"[\w.%+~-]+")
_NO_PORT = re.compile(r":(?!\d{1,5}(?:[/?#,\s]|\Z))")
"""A colon without a port: it separates user and password where an address lacks its @."""
_BRACKETS = re.compile(r"\[[\w:.%-]*\]")
"""An IPv6 address, perhaps with a zone."""
_PARAMETER = re.compile(
    r"(?:(?P<before>[?&;])|(?P<space>[#\s,]|\A))(?P<name>[\w.%-]+)(?P<sign>\s*=\s*)"
    r"(?P<value>'(?:[^'\\]|\\.)*'?|(?(before)[^&]*|[^\s&]*))"
)

_HIDDEN_PARAMETER = re.compile(rf"(?<=[?&])[\w.%-]+={re.escape(HIDDEN)}(?:&|\Z)")


def redact_address(url: str, /) -> str:
    """Return the address with `***` for its secrets. In doubt, more is redacted than needed."""
    head, rest = _split_scheme(url)
    start, end = _password_span(head, rest)
    if end > start:
        rest = f"{rest[:start]}{HIDDEN}{rest[end:]}"
    return head + _PARAMETER.sub(_redact_parameter, rest)


def strip_address_secrets(url: str, /) -> str:
    """Return the address for a command line, without its secrets.

    The password comes from PGPASSWORD or ~/.pgpass there.
    """
    redacted = redact_address(url).replace(f":{HIDDEN}@", "@").replace(f"{HIDDEN}@", "")
    return _HIDDEN_PARAMETER.sub("", redacted).rstrip("?&")


def address_secrets(url: str, /) -> list[str]:
    """Return the passwords of an address."""
    head, rest = _split_scheme(url)
    start, end = _password_span(head, rest)
    password = rest[start:end]
    secrets = [password]
    # A driver may split an unescaped password at any of these characters.
    secrets += [part for part in re.split(r"[@/?#:]", password) if part != password]
    parameters = _PARAMETER.finditer(rest)
    secrets += [match["value"].strip("'") for match in parameters if is_secret(match["name"])]
    return [secret for secret in secrets if secret]


def is_ambiguous(url: str, /) -> bool:
    """Return whether the password has an unescaped @ / ? or #, which drivers split differently."""
    head, rest = _split_scheme(url)
    start, end = _password_span(head, rest)
    return re.search(r"[@/?#\s]", rest[start:end]) is not None


def _split_scheme(url: str) -> tuple[str, str]:
    scheme = _SCHEME.match(url)
    head = scheme[0] if scheme else ""
    return head, url[len(head) :]


def _password_span(head: str, rest: str) -> tuple[int, int]:
    """Return start and end of the password. Empty if there is none."""
    if "sqlite" in head.lower() or (not head and _CONNINFO.match(rest)):
        return 0, 0
    # The last @ ends the user part. An unescaped password may contain others, and / ? # too.
    at = rest.rfind("@")
    if at >= 0 and not _is_parameter(rest[:at]):
        user = rest[:at]
        colon = user.find(":")
        if colon >= 0:
            return colon + 1, at
        # A user without a password. In addresses of HTTP and Redis, it is a token.
        is_token_scheme = head.strip().lower().startswith(("http", "redis", "valkey"))
        is_user = _USER.fullmatch(user) is not None and not is_token_scheme
        return (0, 0) if is_user else (0, at)
    path, _, query = rest.partition("?")
    # A colon in a parameter (`?host=::1,::2`) begins no password.
    authority = path if at >= 0 or "=" in query.partition(":")[0] else rest
    without_ipv6 = _BRACKETS.sub(lambda match: "." * len(match[0]), authority)
    colon_match = _NO_PORT.search(without_ipv6)
    return (0, 0) if colon_match is None or not head else (colon_match.end(), len(rest))


def _is_parameter(before: str) -> bool:
    """Return whether the @ belongs to a parameter such as `?user=ann@server`."""
    path, mark, query = before.partition("?")
    return bool(mark) and "=" in query.partition(":")[0] and _NO_PORT.search(path) is None


def _redact_parameter(match: re.Match[str]) -> str:
    if not is_secret(match["name"]):
        return match[0]
    return f"{match['before'] or match['space']}{match['name']}{match['sign']}{HIDDEN}"


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
