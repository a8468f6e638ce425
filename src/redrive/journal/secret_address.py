"""Secrets in addresses, also in wrongly written ones: an error about an address must not print its password."""

from __future__ import annotations

import re

from .secret_names import is_secret

HIDDEN = "***"
_SCHEME = re.compile(r"\A\s*[A-Za-z][\w+.-]*:/{0,3}|\A\s*/{2,3}")
_PARAMETER = re.compile(r"(?P<before>[?&;#\s,]|\A)(?P<name>[\w.%-]+)(?P<sign>\s*=\s*)(?P<value>'(?:[^'\\]|\\.)*'?|[^&;#\s]*)")


def shown_address(url: str, /) -> str:
    """The address without its password. Of an address that cannot be read, too much rather than too little is hidden."""
    scheme = _SCHEME.match(url)
    head = scheme[0] if scheme else ""
    rest = url[len(head) :]
    # The last @ ends the user's part: a password may have others, and / ? # too, where it was not escaped.
    user, at, host = rest.rpartition("@")
    if at and not _in_parameters(user):
        name, colon, _ = user.partition(":")
        rest = f"{name}:{HIDDEN}@{host}" if colon else f"{user if _is_plain_user(head) else HIDDEN}@{host}"
    return head + _PARAMETER.sub(_shown_parameter, rest)


def secrets_in(url: str, /) -> list[str]:
    """The passwords of an address."""
    head = _SCHEME.match(url)
    rest = url[len(head[0]) :] if head else url
    user, at, _ = rest.rpartition("@")
    found = []
    if at and not _in_parameters(user) and ":" in user:
        found.append(user.partition(":")[2])
        first = rest.partition("@")[0]  # where a parameter has an @ of its own, the password ends earlier
        if first != user and ":" in first:
            found.append(first.partition(":")[2])
    found += [one["value"].strip("'") for one in _PARAMETER.finditer(rest) if is_secret(one["name"])]
    return [each for each in found if each]


def _in_parameters(before: str) -> bool:
    """Whether the @ stands in a parameter such as `?options=a@b` and not behind a user."""
    return re.search(r"(?:[?&]|\A)[\w.-]+=[^:]*\Z", before) is not None and ":" not in before.partition("?")[0]


def _is_plain_user(head: str) -> bool:
    """A user without a password; in an address of the web that is a token."""
    return not head.strip().lower().startswith("http")


def _shown_parameter(found: re.Match[str]) -> str:
    if not is_secret(found["name"]):
        return found[0]
    return f"{found['before']}{found['name']}{found['sign']}{HIDDEN}"
