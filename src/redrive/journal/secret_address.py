"""Secrets in addresses, also in wrongly written ones: an error about an address must not print its password."""

from __future__ import annotations

import re

from .secret_names import is_secret

HIDDEN = "***"
_SCHEME = re.compile(
    r"\A\s*(?:[A-Za-z][\w+.-]*:/{2,3}|(?i:postgres(?:ql)?|redis|rediss|valkeys?|sqlite|https?|s3|sftp|amqps?|mysql)(?:\+\w+)?:/?|/{2,3})"
)
_CONNINFO = re.compile(r"\s*\w+\s*=")
_USER = re.compile(r"[\w.%+~-]+")
_NO_PORT = re.compile(r":(?!\d{1,5}(?:[/?#,\s]|\Z))")
"""A colon that no port follows: of a user and a password, where an address lacks its @."""
_BRACKETS = re.compile(r"\[[0-9A-Fa-f:.%]*\]")
_PARAMETER = re.compile(
    r"(?:(?P<before>[?&;])|(?P<space>[#\s,]|\A))(?P<name>[\w.%-]+)(?P<sign>\s*=\s*)"
    r"(?P<value>'(?:[^'\\]|\\.)*'?|(?(before)[^&]*|[^\s&]*))"
)

_HIDDEN_PARAMETER = re.compile(rf"(?<=[?&])[\w.%-]+={re.escape(HIDDEN)}(?:&|\Z)")


def shown_address(url: str, /) -> str:
    """The address without its password. Of an address that cannot be read, too much rather than too little is hidden."""
    head, rest = _parts(url)
    start, end = _user_part(head, rest)
    if end > start:
        rest = f"{rest[:start]}{HIDDEN}{rest[end:]}"
    return head + _PARAMETER.sub(_shown_parameter, rest)


def typed_address(url: str, /) -> str:
    """The address as it is typed in a command, without its secrets: a password comes from PGPASSWORD or ~/.pgpass."""
    shown = shown_address(url).replace(f":{HIDDEN}@", "@").replace(f"{HIDDEN}@", "")
    return _HIDDEN_PARAMETER.sub("", shown).rstrip("?&")


def secrets_in(url: str, /) -> list[str]:
    """The passwords of an address."""
    head, rest = _parts(url)
    start, end = _user_part(head, rest)
    found = [rest[start:end]]
    found += [part for part in re.split(r"[@/?#:]", rest[start:end]) if part != rest[start:end]]  # how a driver may cut it
    found += [one["value"].strip("'") for one in _PARAMETER.finditer(rest) if is_secret(one["name"])]
    return [each for each in found if each]


def is_ambiguous(url: str, /) -> bool:
    """Whether an address has a user part in which @ : / ? or # is not escaped: each driver would cut it elsewhere."""
    head, rest = _parts(url)
    start, end = _user_part(head, rest)
    return re.search(r"[@/?#\s]", rest[start:end]) is not None


def _parts(url: str) -> tuple[str, str]:
    scheme = _SCHEME.match(url)
    head = scheme[0] if scheme else ""
    return head, url[len(head) :]


def _user_part(head: str, rest: str) -> tuple[int, int]:
    """Where the password stands; an empty place where there is none."""
    if "sqlite" in head.lower() or (not head and _CONNINFO.match(rest)):
        return 0, 0
    # The last @ ends the user's part: a password may have others, and / ? # too, where it was not escaped.
    at = rest.rfind("@")
    if at >= 0 and not _is_parameter(rest[:at]):
        user = rest[:at]
        colon = user.find(":")
        if colon >= 0:
            return colon + 1, at
        # A user without a password; in an address of the web or of Redis it is a token.
        named = _USER.fullmatch(user) is not None and not head.strip().lower().startswith(("http", "redis", "valkey"))
        return (0, 0) if named else (0, at)
    plain = _BRACKETS.sub(lambda found: "." * len(found[0]), rest.partition("?")[0] if at >= 0 else rest)
    found = _NO_PORT.search(plain)
    return (0, 0) if found is None or not head else (found.end(), len(rest))


def _is_parameter(before: str) -> bool:
    """Whether the @ stands in a parameter such as `?user=ann@server` and not behind a user."""
    path, mark, query = before.partition("?")
    return bool(mark) and "=" in query.partition(":")[0] and _NO_PORT.search(path) is None


def _shown_parameter(found: re.Match[str]) -> str:
    if not is_secret(found["name"]):
        return found[0]
    return f"{found['before'] or found['space']}{found['name']}{found['sign']}{HIDDEN}"
