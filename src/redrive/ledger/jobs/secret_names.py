"""Hidden names: `App(secrets=...)` as the ledger keeps it, so that a console or CLI with only its address hides them too."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, column, func, select, table
from sqlalchemy.exc import DBAPIError

from ...journal.redaction import hide
from ..db.session import Session
from ..db.tables import hidden_name, job

LONGEST = 200
ROLES = 20
MOST = 1000
"""Names that are read: a ledger that others write to must not fill this process."""


def learn(connection: Connection, /) -> None:
    """Hide the names that the ledger knows, in this process. Where this user may not read them, log that at debug level."""
    if not is_readable(connection):
        _log_denied()
        return
    found = connection.execute(select(hidden_name.c.name).limit(MOST)).scalars().all()
    hide(*(name for name in found if name.strip("_-. :")))


def is_readable(connection: Connection, /) -> bool:
    """Whether this user may read the names.

    A role with grants on each table, made before this table existed, may not: it must still open the ledger.
    """
    # Asked first: a denied statement would abort the transaction that the caller may be in.
    if connection.dialect.name == "sqlite":
        return True
    allowed = func.has_column_privilege(hidden_name.name, hidden_name.c.name.name, "SELECT")
    return bool(connection.execute(select(allowed)).scalar())


def roles_without(connection: Connection, /) -> list[str]:
    """Roles of Postgres that may read jobs but not the names, quoted for SQL. Up to 20."""
    if connection.dialect.name == "sqlite":
        return []
    role = table("pg_roles", column("rolname"), column("oid"))
    query = (
        select(func.quote_ident(role.c.rolname))
        .where(
            role.c.rolname.not_like("pg!_%", escape="!"),
            func.has_table_privilege(role.c.oid, job.name, "SELECT"),
            ~func.has_column_privilege(role.c.oid, hidden_name.name, hidden_name.c.name.name, "SELECT"),
        )
        .order_by(role.c.rolname)
        .limit(ROLES)
    )
    return list(connection.execute(query).scalars())


def _log_denied() -> None:
    import logging  # noqa: PLC0415  # 14 ms that a program without logging does not need

    logging.getLogger("redrive").debug(
        "%s: this user may not read it, so names of secret fields from other programs are not hidden here; "
        "GRANT SELECT, INSERT ON %s to it",
        hidden_name.name,
        hidden_name.name,
    )


def remember(session: Session, names: Collection[str], /) -> None:
    """Keep names in the ledger. Where it cannot be written to now, the next program that opens it does."""
    if not is_readable(session.core):
        return
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
