"""Secrets in addresses (URLs and connection strings), even in malformed ones.

An error about an address must not print its password.
"""

from __future__ import annotations

import re

from .names import is_secret

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
_BRACKETS = re.compile(r"\[[0-9A-Fa-f:.%]*\]")
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
    authority = rest.partition("?")[0] if at >= 0 else rest
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
