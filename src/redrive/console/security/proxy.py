"""A proxy that authenticates users, and names them in a header."""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .credentials import Role
from .group_roles import GroupRoles, check_roles, user_of
from .user import User

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
LOG = logging.getLogger("redrive.console")
PEER = "redrive.peer"
"""The address of the connection in the scope, before X-Forwarded-For replaced it."""
HEADER_NAME = re.compile(r"[A-Za-z0-9-]+")
MAX_LOGGED = 100
"""Addresses that are logged once each."""


class ProxyHeaderInvalid(Exception):
    """The trusted proxy sent a header that is not one valid name."""


@dataclass(frozen=True, slots=True)
class TrustedProxy:
    """A proxy in front of the console that authenticates users. Event loops may share one.

    The proxy must set the header itself, and remove the one that a client sent.

    Attributes:
        header: Header with the name of the user, such as `X-Forwarded-User`.
        addresses: Addresses or networks of the proxy, such as `10.0.0.5` or `10.0.0.0/24`. The
            header is ignored in requests of others.
        groups_header: Header with the groups of the user, separated by commas.
        roles: Role of each group, or rights of its operators. The first group that a user has
            counts.
        role: Role of users without such a group. None: no access.
    """

    header: str
    addresses: Collection[str]
    groups_header: str | None = None
    roles: GroupRoles = field(default_factory=dict)
    role: Role | None = "viewer"
    _networks: tuple[Network, ...] = field(init=False, repr=False, compare=False)
    _logged: set[str] = field(init=False, repr=False, compare=False, default_factory=set)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            TypeError: An option has another type.
            ValueError: A header, an address or a role is not valid.
        """
        for option, name in (("header", self.header), ("groups_header", self.groups_header)):
            if name is None and option == "groups_header":
                continue
            if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
                raise ValueError(
                    f"TrustedProxy: invalid {option} {name!r}; use a name such as X-Forwarded-User"
                )
        if isinstance(self.addresses, str) or not isinstance(self.addresses, Collection):
            raise TypeError('TrustedProxy: addresses= must be a list such as ["10.0.0.5"]')
        if not self.addresses:
            raise ValueError("TrustedProxy: addresses= is empty; name the addresses of the proxy")
        check_roles("TrustedProxy", self.roles, self.role)
        if self.roles and self.groups_header is None:
            raise ValueError("TrustedProxy: roles= needs groups_header=; pass the header of groups")
        object.__setattr__(self, "_networks", tuple(map(_network, self.addresses)))

    def identify(self, scope: MutableMapping[str, Any], /) -> User | None:
        """Return the user that the proxy names, or None.

        Raises:
            ProxyHeaderInvalid: The proxy sent several names, or an invalid one.
        """
        names = _values(scope, self.header)
        if not names:
            return None
        address = _address(scope)
        if not self._is_trusted(address):
            self._log_stranger(address)
            return None
        if len(names) > 1 or "," in names[0]:
            raise ProxyHeaderInvalid(f"the proxy sent several values of {self.header}")
        groups = _values(scope, self.groups_header) if self.groups_header else []
        if len(groups) > 1:
            raise ProxyHeaderInvalid(f"the proxy sent several values of {self.groups_header}")
        name = names[0].strip()
        members = [group.strip() for text in groups for group in text.split(",")]
        try:
            # Apache sends "(null)" for a request without a user.
            return user_of("" if name == "(null)" else name, members, self.roles, self.role)
        except ValueError:
            raise ProxyHeaderInvalid(f"the proxy sent no valid name in {self.header}") from None

    def _is_trusted(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:  # a Unix socket
            return False
        if parsed.version == 6 and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        return any(parsed in network for network in self._networks)

    def _log_stranger(self, address: str) -> None:
        if address not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(address)
            LOG.warning(
                "console: %s from %s ignored; it is not an address of the trusted proxy",
                self.header,
                address or "an unknown address",
            )


def _network(text: object) -> Network:
    try:
        if not isinstance(text, str):
            raise ValueError
        return ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(
            f"TrustedProxy: invalid address {text!r}; use 10.0.0.5 or 10.0.0.0/24"
        ) from None


def _address(scope: Mapping[str, Any]) -> str:
    client = scope.get(PEER) or scope.get("client")
    return str(client[0]) if client else ""


def _values(scope: Mapping[str, Any], header: str) -> list[str]:
    """Return all values of a header, decoded as UTF-8."""
    wanted = header.lower().encode()
    return [
        value.decode(errors="replace") for name, value in scope["headers"] if name.lower() == wanted
    ]
