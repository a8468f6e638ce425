"""Hidden names: `App(secrets=...)` as the ledger keeps it, so that a console or CLI with only its address hides them too."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from ..journal.redaction import hide
from .session import Session
from .tables import hidden_name

LONGEST = 200
MOST = 1000
"""Names that are read: a ledger that others write to must not fill this process."""


def learn(connection: Connection, /) -> None:
    """Hide the names that the ledger knows, in this process."""
    found = connection.execute(select(hidden_name.c.name).limit(MOST)).scalars().all()
    hide(*(name for name in found if name.strip("_-. :")))


def remember(session: Session, names: Collection[str], /) -> None:
    """Keep names in the ledger. Where it cannot be written to now, the next program that opens it does."""
    known = set(session.core.execute(select(hidden_name.c.name)).scalars())
    missing = sorted(set(names) - known)
    if not missing:
        return
    word = "INSERT OR IGNORE INTO" if session.sqlite else "INSERT INTO"
    end = "" if session.sqlite else " ON CONFLICT DO NOTHING"
    patience = session.raw.execute("PRAGMA busy_timeout").fetchone()[0] if session.sqlite else 0
    try:
        if session.sqlite:  # a transaction of the caller's own may hold the one write lock
            session.raw.execute("PRAGMA busy_timeout = 0")
        for name in missing:
            session.core.exec_driver_sql(
                f"{word} {hidden_name.name} (name) VALUES ({'?' if session.sqlite else '%s'}){end}",
                (name[:LONGEST],),
            )
    except DBAPIError:
        pass  # locked, read-only, or this user may not: this process hides them all the same
    finally:
        if session.sqlite:
            session.raw.execute(f"PRAGMA busy_timeout = {patience}")
