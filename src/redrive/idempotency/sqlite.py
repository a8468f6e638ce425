"""Keys on SQLite. Looked up first, by a reader, or inserted first where the last key of the domain was new (Keys.likely_new)."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import randbelow

from sqlalchemy import bindparam, delete, func, null, or_, select, update
from sqlalchemy.dialects.sqlite import insert

from ..ledger.moment import MICROSECONDS
from ..ledger.now import micros_now
from ..ledger.statement import Runner, sqlite, words
from ..ledger.tables import key
from .record import Ident
from .standing import SCATTER, STORED, Row, Stored, spare

PROCESSING = words("processing")
PLACE = (key.c.domain == bindparam("in_domain"), key.c.user_id == bindparam("of_user"), key.c.key == bindparam("at_key"))
AT = ("in_domain", "of_user", "at_key")
HELD = (*PLACE, key.c.fence == bindparam("mine"), key.c.status == PROCESSING)

LEASED = key.c.lease_until > bindparam("now")
LOOK = sqlite(
    select(*(key.c[name] for name in STORED), LEASED, key.c.expires_at <= bindparam("at")).where(*PLACE), "now", "at", *AT
).text
_NEW = ("domain", "user_id", "key", "fence", "request_hash", "holder", "lease_until", "expires_at", "created_at", "updated_at")
OPEN = sqlite(
    insert(key)
    .values({name: bindparam(name) for name in _NEW} | {"status": PROCESSING})
    .on_conflict_do_nothing(index_elements=[key.c.domain, key.c.user_id, key.c.key]),
    *_NEW,
).text
_AGAIN = ("fence", "request_hash", "holder", "lease_until", "expires_at", "updated_at")
TAKE_OVER = sqlite(
    # Of all who saw the same crash one finds the row as it was. A renewal or a late completion in between counts too.
    update(key)
    .where(*PLACE, key.c.fence == bindparam("seen"), key.c.status == bindparam("was"), or_(key.c.status != PROCESSING, ~LEASED))
    .values({name: bindparam(name) for name in _AGAIN} | {"status": PROCESSING, "response": null(), "error": null()}),
    *_AGAIN, *AT, "seen", "was", "now",
).text  # fmt: skip
_END = ("status", "response", "error", "updated_at")
_settle = update(key).where(*HELD).values({name: bindparam(f"to_{name}") for name in _END})
SETTLE = sqlite(_settle, *(f"to_{name}" for name in _END), *AT, "mine").text
SETTLE_LATE = sqlite(
    _settle.values(expires_at=func.max(key.c.expires_at, bindparam("keep_until"))),
    "to_status", "to_response", "to_error", "keep_until", "to_updated_at", *AT, "mine",
).text  # fmt: skip
FREE = sqlite(delete(key).where(*HELD), *AT, "mine").text
RENEW = sqlite(update(key).where(*HELD).values(lease_until=bindparam("until")), "until", *AT, "mine").text


class OnSQLite:
    """The verbs of a key, on one connection. Keeps nothing: anything may share it."""

    def look(self, run: Runner, ident: Ident, /) -> Row | None:
        """The key as it stands, by the machine's clock, the only one there."""
        now = micros_now()
        row: Row | None = run.execute(LOOK, (now, now, *ident)).fetchone()
        return row

    def open(
        self, run: Runner, ident: Ident, request_hash: bytes | None, holder: str, lease: float, keep: float, /, *, locked: bool
    ) -> int | None:
        """Begin under a key that nobody has: the fence; None: somebody else was faster."""
        now = micros_now()
        until, kept = now + int(lease * MICROSECONDS), now + int((keep + spare(keep)) * MICROSECONDS)
        opened = run.execute(OPEN, (*ident, now, request_hash, holder, until, kept, now, now)).rowcount == 1
        return now if opened else None

    def take_over(
        self, run: Runner, ident: Ident, seen: Stored, request_hash: bytes | None, holder: str, lease: float, keep: float, /,
        *, locked: bool,
    ) -> int | None:  # fmt: skip
        """Begin under a key that is free again: the fence; None: somebody else was faster."""
        now = micros_now()
        fence = max(now, seen.fence + 1 + randbelow(SCATTER))  # also where the clock was set back, and on a restored copy
        until, kept = now + int(lease * MICROSECONDS), now + int((keep + spare(keep)) * MICROSECONDS)
        was = (seen.fence, seen.status, now)
        changed = run.execute(TAKE_OVER, (fence, request_hash, holder, until, kept, now, *ident, *was)).rowcount
        return fence if changed == 1 else None

    def settle(
        self, run: Runner, ident: Ident, fence: int, status: str, response: bytes | None, error: str | None, keep: float, /
    ) -> bool:
        """Write the end; False: the key is somebody else's."""
        now = micros_now()
        if 0 <= now - fence <= int(spare(keep) * MICROSECONDS):  # SQLite would move it in its index, also to where it is
            return run.execute(SETTLE, (status, response, error, now, *ident, fence)).rowcount == 1
        end = (status, response, error, now + int(keep * MICROSECONDS), now)
        return run.execute(SETTLE_LATE, (*end, *ident, fence)).rowcount == 1

    def free(self, run: Runner, ident: Ident, fence: int, /) -> bool:
        """Give the key back as if nothing had happened; False: it is somebody else's."""
        return run.execute(FREE, (*ident, fence)).rowcount == 1

    def renew(self, run: Runner, held: Sequence[tuple[Ident, int]], lease: float, /) -> list[tuple[Ident, int]]:
        """Hold these longer; those that are lost."""
        until = micros_now() + int(lease * MICROSECONDS)
        return [one for one in held if run.execute(RENEW, (until, *one[0], one[1])).rowcount != 1]
