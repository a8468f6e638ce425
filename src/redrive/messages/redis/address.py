"""RedisAddress: the servers of a Redis address: a single one, a cluster or Sentinels. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from ..source_options import parse_server

Mode: TypeAlias = Literal["single", "cluster", "sentinel"]
SINGLE_SCHEMES = ("redis", "rediss", "unix", "valkey", "valkeys")
MODES: dict[str, Mode] = {"cluster": "cluster", "sentinel": "sentinel"}
DEFAULT_PORTS: dict[Mode, int] = {"single": 6379, "cluster": 6379, "sentinel": 26379}


class RedisAddress(NamedTuple):
    """An address such as `redis+cluster://ann:secret@n1:7000,n2:7001`."""

    mode: Mode
    url: str
    """Address for redis-py, of the first server."""
    nodes: tuple[tuple[str, int], ...] = ()
    """Host and port of each server. Empty for the mode `single`."""
    service: str = ""
    """Name of the master, in the mode `sentinel`."""

    @classmethod
    def parse(cls, url: str, /) -> RedisAddress:
        """Return the parts of an address.

        Raises:
            ValueError: It is not valid. The message does not contain the address.
        """
        scheme, mark, rest = url.partition("://")
        base, plus, kind = scheme.partition("+")
        if (
            not mark
            or base not in SINGLE_SCHEMES
            or (plus and (kind not in MODES or base == "unix"))
        ):
            raise ValueError(
                "the URL must begin with redis://, rediss://, unix://, redis+cluster:// or "
                "redis+sentinel://"
            )
        base = base.replace("valkey", "redis")
        if not plus:
            try:  # here, because the error of redis-py shows a part of an unquoted password
                urlsplit(f"{base}://{rest}").port  # noqa: B018
            except ValueError:
                raise ValueError(
                    "the server must be host:port; in a user or password, write / ? # as %2F %3F "
                    "%23"
                ) from None
            return cls("single", f"{base}://{rest}")
        mode = MODES[kind]
        place, question, query = rest.partition("?")
        login, at, place = place.rpartition("@")
        hosts, _, path = place.partition("/")
        example = f"redis+{mode}://n1:7000,n2:7001"
        nodes = tuple(
            parse_server(unquote(host.strip()), DEFAULT_PORTS[mode], example)
            for host in hosts.split(",")
        )
        service, database = "", path.strip("/")
        if mode == "sentinel":
            service, _, database = path.strip("/").partition("/")
            if not service:
                raise ValueError(
                    "the URL must end with the name of the master, such as "
                    "redis+sentinel://host:26379/mymaster"
                )
        elif database not in ("", "0"):
            raise ValueError(f"a cluster has only the database 0, not {database!r}")
        name = f"[{nodes[0][0]}]" if ":" in nodes[0][0] else nodes[0][0]
        first = f"{base}://{login}{at}{name}:{nodes[0][1]}/{database}{question}{query}"
        return cls(mode, first, nodes, unquote(service))

    @property
    def is_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.url.startswith("rediss://")

    @property
    def user(self) -> str:
        """Name of the user."""
        login = self.url.partition("://")[2].partition("?")[0].rpartition("@")[0]
        return unquote(login.partition(":")[0]) or "default"

    @property
    def servers(self) -> str:
        """The servers without login, for messages."""
        if self.nodes:
            return ",".join(f"{host}:{port}" for host, port in self.nodes)
        if self.url.startswith("unix://"):
            return self.url.removeprefix("unix://").partition("?")[0].rpartition("@")[2]
        parts = urlsplit(self.url)
        return f"{parts.hostname or 'localhost'}:{parts.port or DEFAULT_PORTS['single']}"
