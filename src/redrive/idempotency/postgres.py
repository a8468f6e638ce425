"""Keys on Postgres. Looked up first, or inserted first where the last key of the domain was new (see Keys.likely_new).

Measured, in bare statements: look first, first call 1.2 to 1.5, repeat 1.1; insert first, 1.0 and 2.2; both in one statement,
1.1 to 1.3 and 1.4. Guessing right has the better half of each.
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
)  # fmt: skip
from sqlalchemy.dialects.postgresql import insert

from ..ledger.statement import Runner, number, postgres, words
from ..ledger.tables import key
from .record import Ident
from .standing import SCATTER, STORED, Row, Stored, spare

PROCESSING = words("processing")
# Not now(): a caller's transaction may have begun long ago.
NOW: ColumnElement[datetime] = func.clock_timestamp(type_=DateTime(timezone=True))
SECOND = literal_column("interval '1 second'", Interval())
FENCE = cast(extract("epoch", NOW) * number(1_000_000), BigInteger)
# After a failover two servers whose clocks are behind must not give two holders of one key the same fence.
DRAWN = cast(func.random() * number(SCATTER), BigInteger)
LATER = NOW + cast(bindparam("lease"), Float(53)) * SECOND
KEPT = NOW + cast(bindparam("keep"), Float(53)) * SECOND
LEASED = key.c.lease_until > NOW
PLACE = (key.c.domain == bindparam("domain"), key.c.user_id == bindparam("user_id"), key.c.key == bindparam("key"))
HELD = (*PLACE, key.c.fence == bindparam("mine"), key.c.status == PROCESSING)
# Two transactions of callers' at one key: the second is told at once, and does not wait for the first one's commit.
ALONE = func.pg_try_advisory_xact_lock(func.hashtextextended(cast(bindparam("key"), Text), number(0x72656472697665)))


def _open(*conditions: ColumnElement[Any]) -> str:
    given: dict[str, ColumnElement[Any]] = {
        "domain": cast(bindparam("domain"), Text),
        "user_id": cast(bindparam("user_id"), Text),
        "key": cast(bindparam("key"), Text),
        "status": PROCESSING,
        "fence": FENCE,
        "request_hash": cast(bindparam("request_hash"), LargeBinary),
        "holder": cast(bindparam("holder"), Text),
        "lease_until": LATER,
        "expires_at": KEPT,
        "created_at": NOW,
        "updated_at": NOW,
    }
    built = (
        insert(key).from_select(list(given), select(*given.values()).where(*conditions))
        if conditions
        else insert(key).values(given)
    )
    where = [key.c.domain, key.c.user_id, key.c.key]
    return postgres(built.on_conflict_do_nothing(index_elements=where).returning(key.c.fence)).text


def _take_over(*conditions: ColumnElement[Any]) -> str:
    seen = (
        key.c.fence == bindparam("seen"),
        key.c.status == bindparam("was"),
        or_(key.c.status != PROCESSING, ~LEASED),
    )
    # Of all who saw the same crash one finds the row as it was. A renewal or a late completion in between counts too.
    return postgres(
        update(key)
        .where(*PLACE, *seen, *conditions)
        .values(
            status=PROCESSING, fence=func.greatest(FENCE, key.c.fence + number(1) + DRAWN), response=null(), error=null(),
            request_hash=cast(bindparam("request_hash"), LargeBinary), holder=cast(bindparam("holder"), Text),
            lease_until=LATER, expires_at=KEPT, updated_at=NOW,
        )
        .returning(key.c.fence)
    ).text  # fmt: skip


LOOK = postgres(select(*(key.c[name] for name in STORED), LEASED, key.c.expires_at <= NOW).where(*PLACE)).text
OPEN, OPEN_ALONE = _open(), _open(ALONE)
TAKE_OVER, TAKE_OVER_ALONE = _take_over(), _take_over(ALONE)
SETTLE = postgres(
    update(key)
    .where(*HELD)
    .values(
        status=cast(bindparam("to_status"), Text), response=cast(bindparam("to_response"), LargeBinary),
        error=cast(bindparam("to_error"), Text), expires_at=func.greatest(key.c.expires_at, KEPT), updated_at=NOW,
    )
).text  # fmt: skip
FREE = postgres(delete(key).where(*HELD)).text
RENEW = postgres(update(key).where(*HELD).values(lease_until=LATER)).text


class OnPostgres:
    """The verbs of a key, on one connection. Keeps nothing: anything may share it."""

    def look(self, run: Runner, ident: Ident, /) -> Row | None:
        """The key as it stands, by the server's clock."""
        row: Row | None = run.execute(LOOK, {"domain": ident.domain, "user_id": ident.user_id, "key": ident.key}).fetchone()
        return row

    def open(
        self, run: Runner, ident: Ident, request_hash: bytes | None, holder: str, lease: float, keep: float, /, *, locked: bool
    ) -> int | None:
        """Begin under a key that nobody has: the fence; None: somebody else was faster, or has it in an open transaction."""
        given = {
            "domain": ident.domain, "user_id": ident.user_id, "key": ident.key, "request_hash": request_hash, "holder": holder,
            "lease": lease, "keep": keep + spare(keep),
        }  # fmt: skip
        row = run.execute(OPEN_ALONE if locked else OPEN, given).fetchone()
        return None if row is None else int(row[0])

    def take_over(
        self, run: Runner, ident: Ident, seen: Stored, request_hash: bytes | None, holder: str, lease: float, keep: float, /,
        *, locked: bool,
    ) -> int | None:  # fmt: skip
        """Begin under a key that is free again: the fence; None: somebody else was faster."""
        given = {
            **ident._asdict(), "seen": seen.fence, "was": seen.status, "request_hash": request_hash,
            "holder": holder, "lease": lease, "keep": keep + spare(keep),
        }  # fmt: skip
        row = run.execute(TAKE_OVER_ALONE if locked else TAKE_OVER, given).fetchone()
        return None if row is None else int(row[0])

    def settle(
        self, run: Runner, ident: Ident, fence: int, status: str, response: bytes | None, error: str | None, keep: float, /
    ) -> bool:
        """Write the end; False: the key is somebody else's. An end that comes soon leaves the indexes alone."""
        end = {
            "domain": ident.domain, "user_id": ident.user_id, "key": ident.key, "mine": fence, "to_status": status,
            "to_response": response, "to_error": error, "keep": keep,
        }  # fmt: skip
        return run.execute(SETTLE, end).rowcount == 1

    def free(self, run: Runner, ident: Ident, fence: int, /) -> bool:
        """Give the key back as if nothing had happened; False: it is somebody else's."""
        return run.execute(FREE, {**ident._asdict(), "mine": fence}).rowcount == 1

    def renew(self, run: Runner, held: Sequence[tuple[Ident, int]], lease: float, /) -> list[tuple[Ident, int]]:
        """Hold these longer; those that are lost."""
        return [
            one for one in sorted(held) if run.execute(RENEW, {**one[0]._asdict(), "mine": one[1], "lease": lease}).rowcount != 1
        ]
