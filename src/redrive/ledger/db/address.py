"""The address of a ledger."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

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
    unreadable = LedgerError(f"a ledger's address is {FORMS}; {shown!r} cannot be read: {ESCAPES}")
    try:
        parts = urlsplit(url)
        port = None if "," in parts.netloc else parts.port  # the driver parses several hosts
    except ValueError:  # its message may quote a part of the password
        raise unreadable from None
    if is_ambiguous(url):
        raise unreadable
    if parts.scheme == "sqlite":
        return _sqlite(url, shown)
    if parts.scheme in POSTGRES_SCHEMES:
        if not parts.path.strip("/") and not parts.query:
            raise LedgerError(f"{shown!r} names no database; write postgresql://user@host/database")
        if port == 0:
            raise LedgerError(f"{shown!r} has no usable port")
        target, pooled = _split_pool_mode(f"postgresql://{url.partition('://')[2]}", shown)
        return Address("postgresql", target, shown, pooled)
    raise LedgerError(f"a ledger's address is {FORMS}, not {shown!r}")


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
