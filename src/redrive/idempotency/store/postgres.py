"""Idempotency keys on Postgres.

A key is read first, or inserted first if the last key of its domain was new (`Keys.is_likely_new`).
Measured in bare statements: read first, a new key costs 1.2 to 1.5 and a repeated one 1.1. Insert
first, 1.0 and 2.2. Both in one statement, 1.1 to 1.3 and 1.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Float,
    Interval,
    LargeBinary,
    Text,
    bindparam,
    cast,
    delete,
    extract,
    func,
    literal_column,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from ...ledger.db.compiled import Runner, compile_postgres, sql_int, sql_text
from ...ledger.db.tables import key as table
from ..record import (
    MAX_FENCE_JITTER,
    STORED_COLUMNS,
    BeginTerms,
    KeyId,
    KeyResult,
    KeyRow,
    LeasedKey,
    Row,
    extra_retention,
)

PROCESSING = sql_text("processing")
# Not now(), which is the start of the transaction: a caller's transaction may have begun long ago.
NOW: ColumnElement[datetime] = func.clock_timestamp(type_=DateTime(timezone=True))
SECOND = literal_column("interval '1 second'", Interval())
FENCE = cast(extract("epoch", NOW) * sql_int(1_000_000), BigInteger)
# After a failover, the clocks of two servers may both be behind. They must not give two holders of
# one key the same fence.
FENCE_JITTER = cast(func.random() * sql_int(MAX_FENCE_JITTER), BigInteger)
LEASE_UNTIL = NOW + cast(bindparam("lease"), Float(53)) * SECOND
EXPIRES_AT = NOW + cast(bindparam("keep"), Float(53)) * SECOND
IS_LEASED = table.c.lease_until > NOW
IS_KEY = (
    table.c.domain == bindparam("domain"),
    table.c.user_id == bindparam("user_id"),
    table.c.key == bindparam("key"),
)
IS_HELD = (*IS_KEY, table.c.fence == bindparam("mine"), table.c.status == PROCESSING)
# A second transaction of a caller on one key fails at once and does not wait for the first commit.
HAS_LOCK = func.pg_try_advisory_xact_lock(
    func.hashtextextended(cast(bindparam("key"), Text), sql_int(0x72656472697665))
)


def _insert(*conditions: ColumnElement[Any]) -> str:
    values: dict[str, ColumnElement[Any]] = {
        "domain": cast(bindparam("domain"), Text),
        "user_id": cast(bindparam("user_id"), Text),
        "key": cast(bindparam("key"), Text),
        "status": PROCESSING,
        "fence": FENCE,
        "request_hash": cast(bindparam("request_hash"), LargeBinary),
        "holder": cast(bindparam("holder"), Text),
        "lease_until": LEASE_UNTIL,
        "expires_at": EXPIRES_AT,
        "created_at": NOW,
        "updated_at": NOW,
    }
    if conditions:
        statement = insert(table).from_select(
            list(values), select(*values.values()).where(*conditions)
        )
    else:
        statement = insert(table).values(values)
    primary_key = [table.c.domain, table.c.user_id, table.c.key]
    statement = statement.on_conflict_do_nothing(index_elements=primary_key)
    return compile_postgres(statement.returning(table.c.fence))


def _take_over(*conditions: ColumnElement[Any]) -> str:
    is_unchanged = (
        table.c.fence == bindparam("seen"),
        table.c.status == bindparam("was"),
        or_(table.c.status != PROCESSING, ~IS_LEASED),
    )
    values: dict[str, Any] = {
        "status": PROCESSING,
        "fence": func.greatest(FENCE, table.c.fence + sql_int(1) + FENCE_JITTER),
        "response": null(),
        "error": null(),
        "request_hash": cast(bindparam("request_hash"), LargeBinary),
        "holder": cast(bindparam("holder"), Text),
        "lease_until": LEASE_UNTIL,
        "expires_at": EXPIRES_AT,
        "updated_at": NOW,
    }
    statement = update(table).where(*IS_KEY, *is_unchanged, *conditions).values(values)
    return compile_postgres(statement.returning(table.c.fence))


def _settle() -> str:
    values: dict[str, Any] = {
        "status": cast(bindparam("to_status"), Text),
        "response": cast(bindparam("to_response"), LargeBinary),
        "error": cast(bindparam("to_error"), Text),
        "expires_at": func.greatest(table.c.expires_at, EXPIRES_AT),
        "updated_at": NOW,
    }
    return compile_postgres(update(table).where(*IS_HELD).values(values))


_columns = (table.c[name] for name in STORED_COLUMNS)
READ = compile_postgres(select(*_columns, IS_LEASED, table.c.expires_at <= NOW).where(*IS_KEY))
INSERT, INSERT_IN_CALLER = _insert(), _insert(HAS_LOCK)
TAKE_OVER, TAKE_OVER_IN_CALLER = _take_over(), _take_over(HAS_LOCK)
SETTLE = _settle()
FREE = compile_postgres(delete(table).where(*IS_HELD))
RENEW = compile_postgres(update(table).where(*IS_HELD).values(lease_until=LEASE_UNTIL))


class PostgresKeyStore:
    """Idempotency keys on Postgres, by the clock of the server.

    Stateless: anything may share it.
    """

    has_single_writer = False

    def read(self, run: Runner, key: KeyId, /) -> Row | None:
        """Return the values of a `KeyRow`, or None."""
        row: Row | None = run.execute(READ, key._asdict()).fetchone()
        return row

    def insert(
        self, run: Runner, key: KeyId, terms: BeginTerms, /, *, in_caller: bool
    ) -> int | None:
        """Begin a key that has no row.

        Returns:
            The fence. None: another caller was faster, or has the key in an open transaction.
        """
        parameters = {**key._asdict(), **_begin_parameters(terms)}
        row = run.execute(INSERT_IN_CALLER if in_caller else INSERT, parameters).fetchone()
        return None if row is None else int(row[0])

    def take_over(
        self, run: Runner, key: KeyId, row: KeyRow, terms: BeginTerms, /, *, in_caller: bool
    ) -> int | None:
        """Begin a key whose row is free.

        Of all callers that saw the same row, the first one wins.
        """
        seen = {"seen": row.fence, "was": row.status}
        parameters = {**key._asdict(), **seen, **_begin_parameters(terms)}
        taken = run.execute(TAKE_OVER_IN_CALLER if in_caller else TAKE_OVER, parameters).fetchone()
        return None if taken is None else int(taken[0])

    def settle(self, run: Runner, key: KeyId, fence: int, result: KeyResult, /) -> bool:
        """Write the final status. Within the extra retention, `expires_at` does not change."""
        status, response, error, keep = result
        end = {"to_status": status, "to_response": response, "to_error": error, "keep": keep}
        return run.execute(SETTLE, {**key._asdict(), "mine": fence, **end}).rowcount == 1

    def free(self, run: Runner, key: KeyId, fence: int, /) -> bool:
        """Delete the row. False: the key belongs to another holder."""
        return run.execute(FREE, {**key._asdict(), "mine": fence}).rowcount == 1

    def renew(self, run: Runner, leased: Sequence[LeasedKey], lease: float, /) -> list[LeasedKey]:
        """Extend leases. The rows are locked in order, so that two processes cannot deadlock."""
        lost = []
        for key, fence in sorted(leased):
            parameters = {**key._asdict(), "mine": fence, "lease": lease}
            if run.execute(RENEW, parameters).rowcount != 1:
                lost.append((key, fence))
        return lost

    def is_in_transaction(self, connection: Any, /) -> bool:
        """Return whether a connection of psycopg has an open transaction."""
        return bool(connection.info.transaction_status)


def _begin_parameters(terms: BeginTerms) -> dict[str, Any]:
    return {
        "request_hash": terms.request_hash,
        "holder": terms.holder,
        "lease": terms.lease,
        "keep": terms.keep + extra_retention(terms.keep),
    }
