"""Idempotency keys on SQLite.

A key is read first, by a reader, or inserted first if the last key of its domain was new
(`Keys.is_likely_new`).
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import randbelow
from typing import Any

from sqlalchemy import bindparam, delete, func, null, or_, select, update
from sqlalchemy.dialects.sqlite import insert

from ...ledger.db.clock import now_micros
from ...ledger.db.compiled import Runner, compile_sqlite, sql_text
from ...ledger.db.tables import key as table
from ...ledger.timestamps import MICROSECONDS
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
KEY_PARAMETERS = ("in_domain", "of_user", "at_key")
IS_KEY = (
    table.c.domain == bindparam("in_domain"),
    table.c.user_id == bindparam("of_user"),
    table.c.key == bindparam("at_key"),
)
IS_HELD = (*IS_KEY, table.c.fence == bindparam("mine"), table.c.status == PROCESSING)
IS_LEASED = table.c.lease_until > bindparam("now")

_columns = (table.c[name] for name in STORED_COLUMNS)
_read = select(*_columns, IS_LEASED, table.c.expires_at <= bindparam("at")).where(*IS_KEY)
READ = compile_sqlite(_read, "now", "at", *KEY_PARAMETERS)

_INSERTED = (
    "domain",
    "user_id",
    "key",
    "fence",
    "request_hash",
    "holder",
    "lease_until",
    "expires_at",
    "created_at",
    "updated_at",
)
_insert = (
    insert(table)
    .values({name: bindparam(name) for name in _INSERTED} | {"status": PROCESSING})
    .on_conflict_do_nothing(index_elements=[table.c.domain, table.c.user_id, table.c.key])
)
INSERT = compile_sqlite(_insert, *_INSERTED)

_TAKEN_OVER = ("fence", "request_hash", "holder", "lease_until", "expires_at", "updated_at")
_cleared = {"status": PROCESSING, "response": null(), "error": null()}
_is_unchanged = (
    table.c.fence == bindparam("seen"),
    table.c.status == bindparam("was"),
    or_(table.c.status != PROCESSING, ~IS_LEASED),
)
_take_over = (
    update(table)
    .where(*IS_KEY, *_is_unchanged)
    .values({name: bindparam(name) for name in _TAKEN_OVER} | _cleared)
)
TAKE_OVER = compile_sqlite(_take_over, *_TAKEN_OVER, *KEY_PARAMETERS, "seen", "was", "now")

_SETTLED = ("status", "response", "error", "updated_at")
_settle = update(table).where(*IS_HELD).values({name: bindparam(f"to_{name}") for name in _SETTLED})
SETTLE = compile_sqlite(_settle, *(f"to_{name}" for name in _SETTLED), *KEY_PARAMETERS, "mine")
_later = _settle.values(expires_at=func.max(table.c.expires_at, bindparam("keep_until")))
_end = ("to_status", "to_response", "to_error", "keep_until", "to_updated_at")
SETTLE_LATE = compile_sqlite(_later, *_end, *KEY_PARAMETERS, "mine")

FREE = compile_sqlite(delete(table).where(*IS_HELD), *KEY_PARAMETERS, "mine")
_renew = update(table).where(*IS_HELD).values(lease_until=bindparam("until"))
RENEW = compile_sqlite(_renew, "until", *KEY_PARAMETERS, "mine")


class SqliteKeyStore:
    """Idempotency keys on SQLite, by the clock of this machine.

    Stateless: anything may share it.
    """

    # Only one transaction can write at a time, and readers do not wait for it.
    has_single_writer = True

    def read(self, run: Runner, key: KeyId, /) -> Row | None:
        """Return the values of a `KeyRow`, or None."""
        now = now_micros()
        row: Row | None = run.execute(READ, (now, now, *key)).fetchone()
        return row

    def insert(
        self, run: Runner, key: KeyId, terms: BeginTerms, /, *, in_caller: bool
    ) -> int | None:
        """Begin a key that has no row.

        Returns:
            The fence. None: another caller was faster, or has the key in an open transaction.
        """
        now = now_micros()
        values = (now, terms.request_hash, terms.holder, *_ends(terms, now), now, now)
        is_new = run.execute(INSERT, (*key, *values)).rowcount == 1
        return now if is_new else None

    def take_over(
        self, run: Runner, key: KeyId, row: KeyRow, terms: BeginTerms, /, *, in_caller: bool
    ) -> int | None:
        """Begin a key whose row is free.

        Of all callers that saw the same row, the first one wins.
        """
        now = now_micros()
        # The fence grows even if the clock was set back, and differs on a restored copy.
        fence = max(now, row.fence + 1 + randbelow(MAX_FENCE_JITTER))
        values = (fence, terms.request_hash, terms.holder, *_ends(terms, now), now)
        seen = (row.fence, row.status, now)
        is_taken = run.execute(TAKE_OVER, (*values, *key, *seen)).rowcount == 1
        return fence if is_taken else None

    def settle(self, run: Runner, key: KeyId, fence: int, result: KeyResult, /) -> bool:
        """Write the final status. False: the key belongs to another holder."""
        status, response, error, keep = result
        now = now_micros()
        # SQLite moves a row in its index even if the new value is the old one.
        if 0 <= now - fence <= int(extra_retention(keep) * MICROSECONDS):
            return run.execute(SETTLE, (status, response, error, now, *key, fence)).rowcount == 1
        end = (status, response, error, now + int(keep * MICROSECONDS), now)
        return run.execute(SETTLE_LATE, (*end, *key, fence)).rowcount == 1

    def free(self, run: Runner, key: KeyId, fence: int, /) -> bool:
        """Delete the row. False: the key belongs to another holder."""
        return run.execute(FREE, (*key, fence)).rowcount == 1

    def renew(self, run: Runner, leased: Sequence[LeasedKey], lease: float, /) -> list[LeasedKey]:
        """Extend leases. Returns the keys that belong to other holders."""
        until = now_micros() + int(lease * MICROSECONDS)
        return [
            (key, fence)
            for key, fence in leased
            if run.execute(RENEW, (until, *key, fence)).rowcount != 1
        ]

    def is_in_transaction(self, connection: Any, /) -> bool:
        """Return whether a connection of sqlite3 has an open transaction."""
        return bool(connection.in_transaction)


def _ends(terms: BeginTerms, now: int) -> tuple[int, int]:
    """Return the end of the lease and of the retention, in microseconds."""
    keep = terms.keep + extra_retention(terms.keep)
    return now + int(terms.lease * MICROSECONDS), now + int(keep * MICROSECONDS)
