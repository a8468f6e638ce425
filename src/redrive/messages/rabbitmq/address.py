"""AmqpAddress: the servers of an AMQP address, and one URL for each. Pure."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs, quote, unquote

from ...journal.redaction.secrets import redact_address
from ..source_options import join_server, parse_server

SCHEMES = ("amqp", "amqps")
DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}
DEFAULT_USER = "guest"
HEARTBEAT_SECONDS = 10
"""A dead connection is noticed after three times this. The client's own default is 60 s."""


class AmqpAddress(NamedTuple):
    """Servers of an address such as `amqp://ann:secret@r1,r2,r3/shop?heartbeat=5`."""

    scheme: str
    login: str
    servers: tuple[str, ...]
    """Host and port of each server."""
    vhost: str
    query: str

    @classmethod
    def parse(cls, url: str, /) -> AmqpAddress:
        """Return the parts of an address.

        Raises:
            ValueError: It is not valid. The message shows no password.
        """
        shown = redact_address(url)
        scheme, mark, rest = url.strip().partition("://")
        if not mark or scheme not in SCHEMES:
            raise ValueError(f"the URL must begin with amqp:// or amqps://: {shown!r}")
        # A login may hold any of the other marks, if it is not quoted.
        login, at, rest = rest.rpartition("@")
        place, _, query = rest.partition("?")
        hosts, _, vhost = place.partition("/")
        if not at:
            login = ""
        example = f"amqp://r1:5672,r2:5672: {shown!r}"
        servers = tuple(
            join_server(*parse_server(host.strip(), DEFAULT_PORTS[scheme], example))
            for host in hosts.split(",")
        )
        return cls(scheme, login, servers, unquote(vhost) or "/", query)

    @property
    def user(self) -> str:
        """Name of the user."""
        return unquote(self.login.partition(":")[0]) or DEFAULT_USER

    @property
    def server_list(self) -> str:
        """The servers, without the login."""
        return ",".join(self.servers)

    def url(self, server: str, name: str, /) -> str:
        """Return the URL of one server, with the defaults of Redrive.

        Args:
            server: One of the servers.
            name: Name of the connection, for operators of the broker.
        """
        given = parse_qs(self.query, keep_blank_values=True)
        query = [self.query] if self.query else []
        if "heartbeat" not in given:
            query.append(f"heartbeat={HEARTBEAT_SECONDS}")
        if "name" not in given:
            query.append(f"name={quote(name, safe='')}")
        login = ""
        if self.login:
            user, mark, password = self.login.partition(":")
            login = f"{_quote_once(user)}{mark}{_quote_once(password)}@"
        vhost = "" if self.vhost == "/" else quote(self.vhost, safe="")
        return f"{self.scheme}://{login}{server}/{vhost}?{'&'.join(query)}"


def _quote_once(text: str) -> str:
    return quote(unquote(text), safe="")
