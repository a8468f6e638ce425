"""Where a ledger is: the address that people write, read into its parts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from ...errors import LedgerError
from ...journal.redaction.addresses import is_ambiguous, redact_address, strip_address_secrets
from ...journal.redaction.values import keep_address_secret

FORMS = "sqlite:///path/to/file.db, sqlite:// (in memory) or postgresql://user@host/database"
UNREADABLE = "in a user or password, write @ : / ? # % [ ] as %40 %3A %2F %3F %23 %25 %5B %5D; a port is a number up to 65535"
POSTGRES = frozenset(("postgresql", "postgres", "postgresql+psycopg"))
_POOLED = re.compile(r"([?&])pool_mode=([^&#]*)&?")
"""Our own parameter, in PgBouncer's words."""
_USER = re.compile(r"://[^@/?]*@")


class Address(NamedTuple):
    """A ledger's address. Immutable: anything may share it."""

    dialect: Literal["sqlite", "postgresql"]
    target: str
    """The file (empty: in memory), or what the Postgres driver takes. It may hold a password: never shown."""
    shown: str
    """The address without its password."""
    pooled: bool = False
    """Behind a pooler that gives each transaction another connection of the server: what a session keeps is not ours."""

    @property
    def in_memory(self) -> bool:
        """Private to this process, gone with it."""
        return self.dialect == "sqlite" and not self.target


def parse(url: str, /) -> Address:
    """Read an address; LedgerError says what forms there are. Nothing is opened."""
    if not isinstance(url, str):
        raise TypeError(f"a ledger's address must be text, {FORMS}; not {type(url).__name__}")
    keep_address_secret(url)
    shown = redact_address(url)
    unreadable = LedgerError(f"a ledger's address is {FORMS}; {shown!r} cannot be read: {UNREADABLE}")
    try:
        parts = urlsplit(url)
        port = None if "," in parts.netloc else parts.port  # of several hosts, the driver looks at each
    except ValueError:  # its text may quote a part of the password
        raise unreadable from None
    if is_ambiguous(url):
        raise unreadable
    if parts.scheme == "sqlite":
        return _sqlite(url, shown)
    if parts.scheme in POSTGRES:
        if not parts.path.strip("/") and not parts.query:
            raise LedgerError(f"{shown!r} names no database; write postgresql://user@host/database")
        if port == 0:
            raise LedgerError(f"{shown!r} has no usable port")
        target, pooled = _pooled(f"postgresql://{url.partition('://')[2]}", shown)
        return Address("postgresql", target, shown, pooled)
    raise LedgerError(f"a ledger's address is {FORMS}, not {shown!r}")


def _pooled(url: str, shown: str) -> tuple[str, bool]:
    found = _POOLED.search(url)
    if found is None:
        return url, False
    if found[2] not in ("transaction", "session"):
        raise LedgerError(f"{shown!r}: pool_mode must be transaction or session, as in the pooler, not {found[2]!r}")
    return _POOLED.sub(r"\1", url, count=1).rstrip("?&"), found[2] == "transaction"


def _sqlite(url: str, shown: str) -> Address:
    path = url.removeprefix("sqlite:")
    if path in ("//", "///:memory:"):
        return Address("sqlite", "", shown)
    if not path.startswith("///") or len(path) == 3:
        raise LedgerError(f"{shown!r} names no file; write sqlite:///file.db, or sqlite:////absolute/path/file.db")
    if "?" in path or "#" in path:
        raise LedgerError(f"{shown!r}: a SQLite ledger takes no options in its address; remove them")
    return Address("sqlite", str(Path(path[3:]).absolute()), shown)


def migration(shown: str, /) -> str:
    """How to create or upgrade the tables at this address, for messages. The command runs as it is printed."""
    return f"`{migrate_command(shown)}`, or open_ledger(..., migrate=True)"


def migrate_command(shown: str, /, *, user: bool = True) -> str:
    """The command that creates or upgrades the tables at this address, as it is typed. Never with a secret.

    user: False: without a user in the address, for another one to run it.
    """
    import shlex  # noqa: PLC0415  # only where something is wrong

    address = strip_address_secrets(shown)
    if not user:
        address = _USER.sub("://", address, count=1)
    return f"redrive ledger migrate --ledger {shlex.quote(address)}"
