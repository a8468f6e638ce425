"""NatsAddress: the servers of a NATS address, and how to log in. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from ..source_options import join_server, parse_server

DEFAULT_PORT = 4222
SCHEMES = ("nats", "tls")


class NatsAddress(NamedTuple):
    """Servers and login of an address such as `nats://ann:secret@n1:4222,n2:4222`."""

    servers: tuple[str, ...]
    """Host and port of each server."""
    is_tls: bool = False
    user: str | None = None
    password: str | None = None
    token: str | None = None

    @classmethod
    def parse(cls, url: str, /) -> NatsAddress:
        """Return the parts of an address. The scheme and the login may be repeated.

        Raises:
            ValueError: It is not valid. The message shows no login.
        """
        shown = hide_login(url)
        servers: list[str] = []
        schemes: set[str] = set()
        login = ""
        for part in url.split(","):
            scheme, mark, rest = part.strip().rpartition("://")
            if mark:
                schemes.add(scheme)
            own_login, _, host = rest.rpartition("@")
            login = login or own_login
            server = parse_server(
                host.rstrip("/"), DEFAULT_PORT, f"nats://n1:4222,n2:4222: {shown!r}"
            )
            servers.append(join_server(*server))
        if not schemes <= set(SCHEMES) or len(schemes) != 1:
            raise ValueError(
                "the address must begin with nats:// or tls://, such as nats://localhost: "
                f"{shown!r}"
            )
        is_tls = schemes == {"tls"}
        name, mark, password = login.partition(":")
        if mark:
            return cls(tuple(servers), is_tls, unquote(name), unquote(password))
        return cls(tuple(servers), is_tls, token=unquote(name) or None)

    @property
    def without_login(self) -> str:
        """The servers, for messages."""
        return ",".join(self.servers)


def hide_login(url: str, /) -> str:
    """Return an address without user, password and token. In doubt, more is hidden than needed."""
    return re.sub(r"(://|\A).*@", r"\1***@", url, flags=re.DOTALL)
