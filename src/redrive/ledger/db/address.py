"""The address of a ledger."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import unquote

from ...errors import LedgerError
from ...journal.redaction.secrets import (
    is_ambiguous,
    keep_address_secret,
    redact_address,
    strip_address_secrets,
)

FORMS = "sqlite:///path/to/file.db, sqlite:// (in memory) or postgresql://user@host/database"
ESCAPES = (
    "in a user or password, write @ : / ? # % [ ] as %40 %3A %2F %3F %23 %25 %5B %5D; "
    "a port is a number up to 65535"
)
POSTGRES_SCHEMES = frozenset(("postgresql", "postgres", "postgresql+psycopg"))
CHOICES = {
    "target_session_attrs": (
        *("read-write", "primary", "any"),
        *("read-only", "standby", "prefer-standby"),
    ),
    "load_balance_hosts": ("disable", "random"),
}
"""Values of libpq's options for several hosts."""
MAX_PORT = 65535
_POSTGRES = re.compile(
    r"(?:[^@/?]*@)?(?P<hosts>[^/?]*)(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?", re.DOTALL
)
"""The part after `://`, as libpq splits it. Some versions of Python reject several IPv6 hosts in a
URL."""
_HOST = re.compile(r"(?P<name>\[[^\]]*\]|[^:]*)(?::(?P<port>.*))?", re.DOTALL)
_POOL_MODE = re.compile(r"([?&])pool_mode=([^&#]*)&?")
"""Parameter of Redrive, with PgBouncer's values."""
_USER = re.compile(r"://[^@/?]*@")


class Address(NamedTuple):
    """The address of a ledger. Immutable."""

    dialect: Literal["sqlite", "postgresql"]
    target: str
    """The file (empty: in memory), or the address for psycopg. May hold a password: never show
    it."""
    shown: str
    """The address without its password."""
    pooled: bool = False
    """Behind a pooler in transaction mode, where a session has no state of its own."""
    sandboxed: bool = False
    """The ledger of a test. It is deleted afterwards, so commits are not synced to the disk."""

    @property
    def in_memory(self) -> bool:
        """Whether the ledger is private to this process."""
        return self.dialect == "sqlite" and not self.target


def parse(url: str, /) -> Address:
    """Parse an address. Opens nothing.

    Raises:
        LedgerError: The address is not valid. The message lists the valid forms.
    """
    if not isinstance(url, str):
        raise TypeError(f"a ledger's address must be text, {FORMS}; not {type(url).__name__}")
    keep_address_secret(url)
    shown = redact_address(url)
    # Without the text of an error: it may quote a part of the password.
    unreadable = LedgerError(f"a ledger's address is {FORMS}; {shown!r} cannot be read: {ESCAPES}")
    if is_ambiguous(url):
        raise unreadable
    if url.startswith("sqlite:"):
        return _sqlite(url, shown)
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in POSTGRES_SCHEMES:
        raise LedgerError(f"a ledger's address is {FORMS}, not {shown!r}")
    servers = _servers(rest)
    if servers is None:
        raise unreadable
    _check_servers(servers, shown)
    target, pooled = _split_pool_mode(f"postgresql://{rest}", shown)
    return Address("postgresql", target, shown, pooled)


class _Parts(NamedTuple):
    """The servers in an address of Postgres, and the database. Immutable."""

    hosts: tuple[str, ...]
    """Names, IP addresses or folders of sockets. Empty: the default of libpq."""
    ports: tuple[str, ...]
    """One for each host, or one for all. An empty one is the default of libpq."""
    database: str
    options: dict[str, str]


def _servers(rest: str) -> _Parts | None:
    """Split the part of an address after `://`. None: it cannot be read."""
    match = _POSTGRES.fullmatch(rest)
    if match is None:
        return None
    hosts: list[str] = []
    ports: list[str] = []
    for part in match["hosts"].split(","):
        host = _HOST.fullmatch(part)
        if host is None or part.count("[") != part.count("]"):
            return None
        hosts.append(unquote(host["name"].strip("[]")))
        ports.append(unquote(host["port"] or ""))
    pairs = (part.partition("=") for part in (match["query"] or "").split("&") if part)
    options = {unquote(name): unquote(value) for name, _, value in pairs}
    if "port" in options:
        ports = options["port"].split(",")
    if names := options.get("host") or options.get("hostaddr"):
        hosts = names.split(",")
    if any(not port.isdecimal() or int(port) > MAX_PORT for port in ports if port):
        return None
    database = options.get("dbname") or unquote(match["database"] or "")
    return _Parts(tuple(host.lower() for host in hosts), tuple(ports), database, options)


def _check_servers(servers: _Parts, shown: str) -> None:
    hosts, ports = servers.hosts, servers.ports
    if not servers.database and not servers.options:
        raise LedgerError(f"{shown!r} names no database; write postgresql://user@host/database")
    if any(port and not int(port) for port in ports):
        raise LedgerError(f"{shown!r} has no usable port")
    if len(ports) not in (1, len(hosts)):
        raise LedgerError(
            f"{shown!r}: {len(ports)} ports for {len(hosts)} hosts; "
            "write one port for each host, or one for all"
        )
    for name, values in CHOICES.items():
        value = servers.options.get(name)
        if value is not None and value not in values:
            raise LedgerError(
                f"{shown!r}: invalid {name} {value!r}; use {', '.join(values[:-1])} or {values[-1]}"
            )


def database_of(url: str, /) -> tuple[str, ...]:
    """Return what identifies the database of a valid address, in any spelling.

    User, port and order of the hosts do not.
    """
    rest = url.partition("://")[2]
    servers = None if url.startswith("sqlite:") else _servers(rest)
    if servers is None:
        return ("sqlite", rest)
    return ("postgresql", servers.database, *sorted(set(servers.hosts)))


def _split_pool_mode(url: str, shown: str) -> tuple[str, bool]:
    match = _POOL_MODE.search(url)
    if match is None:
        return url, False
    mode = match[2]
    if mode not in ("transaction", "session"):
        raise LedgerError(
            f"{shown!r}: pool_mode must be transaction or session, as in the pooler, not {mode!r}"
        )
    return _POOL_MODE.sub(r"\1", url, count=1).rstrip("?&"), mode == "transaction"


def _sqlite(url: str, shown: str) -> Address:
    path = url.removeprefix("sqlite:")
    if path in ("//", "///:memory:"):
        return Address("sqlite", "", shown)
    if not path.startswith("///") or len(path) == 3:
        raise LedgerError(
            f"{shown!r} names no file; write sqlite:///file.db, or sqlite:////absolute/path/file.db"
        )
    if "?" in path or "#" in path:
        raise LedgerError(
            f"{shown!r}: a SQLite ledger takes no options in its address; remove them"
        )
    return Address("sqlite", str(Path(path[3:]).absolute()), shown)


def migration(shown: str, /) -> str:
    """Return how to create or upgrade the tables, for messages. The command runs as printed."""
    return f"`{migrate_command(shown)}`, or open_ledger(..., migrate=True)"


def migrate_command(shown: str, /, *, user: bool = True) -> str:
    """Return the command that creates or upgrades the tables. It never contains a secret.

    Args:
        shown: The address without its password.
        user: False to leave the user out of the address, because another user runs it.
    """
    address = strip_address_secrets(shown)
    if not user:
        address = _USER.sub("://", address, count=1)
    return f"redrive ledger migrate --ledger {shlex.quote(address)}"
