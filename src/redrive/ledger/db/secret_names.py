"""Names of secret fields (`App(secrets=...)`) in the ledger, so that every program redacts them.

A console or CLI that has only the address of the ledger learns them from here.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from sqlalchemy import Connection, column, func, select, table
from sqlalchemy.exc import DBAPIError

from ...journal.redaction import hide
from .session import Session
from .tables import hidden_name, job

MAX_NAME_CHARS = 200
MAX_ROLES = 20
MAX_NAMES = 1000
"""Names that are read. Other programs write to the ledger, and must not fill this process."""


def learn(connection: Connection, /) -> None:
    """Redact the stored names in this process. Log at debug level if they are not readable."""
    if not is_readable(connection):
        _log_denied()
        return
    names = connection.execute(select(hidden_name.c.name).limit(MAX_NAMES)).scalars().all()
    hide(*(name for name in names if name.strip("_-. :")))


def is_readable(connection: Connection, /) -> bool:
    """Return whether this user may read the names.

    A role with grants from before the table existed may not. It must still open the ledger.
    """
    # A denied statement would abort the transaction that the caller may be in.
    if connection.dialect.name == "sqlite":
        return True
    may_select = func.has_column_privilege(hidden_name.name, hidden_name.c.name.name, "SELECT")
    return bool(connection.execute(select(may_select)).scalar())


def roles_without(connection: Connection, /) -> list[str]:
    """Return the roles of Postgres that may read jobs but not the names, quoted. At most 20."""
    if connection.dialect.name == "sqlite":
        return []
    role = table("pg_roles", column("rolname"), column("oid"))
    query = (
        select(func.quote_ident(role.c.rolname))
        .where(
            role.c.rolname.not_like("pg!_%", escape="!"),
            func.has_table_privilege(role.c.oid, job.name, "SELECT"),
            ~func.has_column_privilege(
                role.c.oid, hidden_name.name, hidden_name.c.name.name, "SELECT"
            ),
        )
        .order_by(role.c.rolname)
        .limit(MAX_ROLES)
    )
    return list(connection.execute(query).scalars())


def _log_denied() -> None:
    logging.getLogger("redrive").debug(
        "%s: this user may not read it, so names of secret fields from other programs are not "
        "hidden here; GRANT SELECT, INSERT ON %s to it",
        hidden_name.name,
        hidden_name.name,
    )


def remember(session: Session, names: Collection[str], /) -> None:
    """Store names. If the ledger cannot be written to now, the next program that opens it does."""
    if not is_readable(session.core):
        return
    stored = set(session.core.execute(select(hidden_name.c.name)).scalars())
    missing = sorted(set(names) - stored)
    if not missing:
        return
    mark = "?" if session.sqlite else "%s"
    insert = f"INSERT INTO {hidden_name.name} (name) VALUES ({mark}) ON CONFLICT DO NOTHING"  # noqa: S608
    try:
        with session.busy_timeout(0):  # the caller's own transaction may hold SQLite's write lock
            for name in missing:
                session.core.exec_driver_sql(insert, (name[:MAX_NAME_CHARS],))
    except DBAPIError:
        pass  # locked, read-only or not allowed: this process redacts them all the same
