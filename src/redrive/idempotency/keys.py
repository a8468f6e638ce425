"""Keys: the ledger's memory of what was done under which key."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeAlias

from sqlalchemy import Connection

from ..core.key import KeyLike
from ..core.lock import LOCK
from ..errors import LeaseLost, LedgerUnavailable
from ..ledger.crashpoint import crash_point
from ..ledger.ledger import Ledger
from ..ledger.limits import payload
from ..ledger.statement import Runner
from . import upkeep
from .keeper import Keeper
from .postgres import OnPostgres
from .record import Begun, Ident, KeyRecord, Status
from .sqlite import OnSQLite
from .standing import Stored, come_back, standing

On: TypeAlias = OnSQLite | OnPostgres
Terms: TypeAlias = tuple[bytes | None, str, float, float]
"""Of one beginning: the request's hash, the holder, seconds of its lease, seconds to keep the key."""
UNKNOWN = 1000
"""Beginnings with an unknown outcome that are remembered."""
LEASE = 30.0
"""Seconds for which a holder that is not heard of any more keeps its key. Renewed at a third of it."""
THREADS = 4
DOMAINS = 1000
ROUNDS = 20
"""How often to look again where others are faster each time."""


class Keys:
    """The idempotency keys of a ledger. Threads may share it, and so may forked children. Its methods block."""

    def __init__(self, ledger: Ledger, /, *, lease: float = LEASE) -> None:
        self.ledger = ledger
        self.lease = lease
        # A key's verbs are a statement or two each, at request latency: they run on the ledger's own sessions.
        self._write, self._read = ledger.connections.write, ledger.connections.read
        self.on_sqlite = ledger.connections.on_sqlite
        self._on: On = OnSQLite() if self.on_sqlite else OnPostgres()
        self._new: dict[str, bool] = {}
        self._unknown: dict[Ident, str] = {}
        """Keys that may have been begun on a connection that was lost, and by which holder: no work was done under them."""
        self._threads: tuple[int, ThreadPoolExecutor] | None = None
        self.keeper = Keeper(self.renew, self.sweep, lease, self.free_unknown)

    # ---- the verbs ----

    def begin(self, ident: Ident, request_hash: bytes | None = None, /, *, keep: float, run: Runner | None = None) -> Begun:
        """Begin under a key, or be told why not. Who is told `fresh` holds it until it settles, or its lease runs out.

        run: a transaction, in which it is settled too. Nothing is leased then: the transaction holds the key.
        """
        if run is not None:
            begun = self._begin(run, ident, (request_hash, _holder(), self.lease, keep), locked=True)
            crash_point("key.begin.in_caller")
            return begun
        if self.on_sqlite and not self.likely_new(ident):
            told = self.look(ident, request_hash)  # readers don't wait for the one writer
            if told is not None:
                return told
        crash_point("key.begin.before_commit")
        terms = (request_hash, _holder(), self.lease, keep)
        if ident in self._unknown:
            self._free_unknown(ident)
        try:
            begun = self._begin_apart(ident, terms)
        except LedgerUnavailable as error:
            if not error.sent and not error.stale:
                raise
            begun = self._begin_again(ident, terms)
        if begun.outcome == "fresh":
            crash_point("key.begin.after_commit")
            self.keeper.hold(ident, begun.fence)
        return begun

    def _begin_apart(self, ident: Ident, terms: Terms) -> Begun:
        """Begin by itself, on a session of the ledger's."""
        session = self._write.take()
        try:
            return self._begin(session.run, ident, terms, locked=False)
        except Exception as error:
            session.explain(error)
            raise
        finally:
            self._write.give(session)

    def _begin_again(self, ident: Ident, terms: Terms) -> Begun:
        """Begin after the connection was lost: the key may be this caller's already, and nobody would ever use it."""
        try:
            begun = self._adopted(ident, terms[1]) or self._begin_apart(ident, terms)
            if begun.outcome == "busy":  # the lost statement may have been executed in between
                begun = self._adopted(ident, terms[1]) or begun
        except LedgerUnavailable:
            while len(self._unknown) >= UNKNOWN:
                self._unknown.pop(next(iter(self._unknown)), None)  # the oldest: its lease runs out first
            self._unknown[ident] = terms[1]
            self.keeper.watch_unknown()
            raise
        return begun

    def _free_unknown(self, ident: Ident) -> None:
        """Give back a key whose beginning was never answered: no work was done under it."""
        holder = self._unknown.get(ident)
        mine = None if holder is None else self._adopted(ident, holder)
        if mine is not None:
            self._settle_apart(ident, lambda on, run, ident: on.free(run, ident, mine.fence))
        self._unknown.pop(ident, None)

    def free_unknown(self) -> None:
        """Give back every key whose beginning was never answered. (The keeper does this when the ledger answers again.)"""
        if not self._unknown:
            return
        # On a session of its own, as for `renew`. A holder is of one beginning: a later one's key is left alone.
        with self.ledger.connections.apart() as session:
            for ident, holder in list(self._unknown.items()):
                mine = self._held_by(upkeep.find(session, ident), holder)
                if mine is not None:
                    self._on.free(session.run, ident, mine.fence)
                if self._unknown.get(ident) == holder:
                    self._unknown.pop(ident, None)

    def _adopted(self, ident: Ident, holder: str) -> Begun | None:
        """The key, where this holder has it."""
        with self._write.use() as session:
            return self._held_by(upkeep.find(session, ident), holder)

    def _held_by(self, found: KeyRecord | None, holder: str) -> Begun | None:
        mine = found is not None and found.holder == holder and found.status == "processing" and not found.abandoned
        return Begun("fresh", found.fence) if found is not None and mine else None

    def _begin(self, run: Runner, ident: Ident, terms: Terms, *, locked: bool) -> Begun:
        # On SQLite it was looked for already, where it is likely to be found; and in a transaction the first statement there has
        # to be a write: one that begins by reading may not be able to go on.
        first = self.on_sqlite or self.likely_new(ident)
        fence = self._on.open(run, ident, *terms, locked=locked) if first else None
        begun = Begun("fresh", fence) if fence is not None else self._looked(run, ident, terms, locked=locked)
        self._new[ident.domain] = begun.outcome == "fresh"
        return begun

    def _looked(self, run: Runner, ident: Ident, terms: Terms, *, locked: bool) -> Begun:
        for _round in range(ROUNDS):
            row = self._on.look(run, ident)
            stored = None if row is None else Stored._make(row)
            if stored is None:
                fence = self._on.open(run, ident, *terms, locked=locked)
            else:
                told = standing(stored, terms[0], self.lease)
                if told is not None:
                    return told
                fence = self._on.take_over(run, ident, stored, *terms, locked=locked)
            if fence is not None:
                return Begun("fresh", fence, taken_over=stored is not None and stored.status == "processing")
            # Somebody was faster: look again. Nothing to be seen at the second look: it is in a transaction that is still open.
            if locked and _round:
                break
        return Begun("busy", until=come_back(None, self.lease))

    def look(self, ident: Ident, request_hash: bytes | None = None, /) -> Begun | None:
        """What a caller would be told; None: it could begin. Changes nothing."""
        self._write.outside()  # a thread that could not begin is told so, also where there is nothing to begin
        session = self._read.take()  # `with` would cost a tenth of all this
        try:
            stored = self._on.look(session.run, ident)
        finally:
            self._read.give(session)
        return None if stored is None else standing(stored, request_hash, self.lease)

    def likely_new(self, ident: Ident, /) -> bool:
        """Whether the last key of this domain was new. Then the next one is too, and to look first would cost a round trip."""
        if len(self._new) > DOMAINS:
            self._new.clear()
        return self._new.get(ident.domain, True)

    def complete(self, ident: Ident, fence: int, response: bytes | None, /, *, keep: float, run: Runner | None = None) -> None:
        """The work is done, and this is its answer (JSON). LeaseLost: the key is somebody else's, nothing was changed."""
        if response is not None:
            payload("response", response, self.ledger.max_payload)
        self._settled(
            "complete", ident, fence, run, lambda on, run, ident: on.settle(run, ident, fence, "completed", response, None, keep)
        )

    def fail(self, ident: Ident, fence: int, error: Mapping[str, Any], /, *, keep: float, run: Runner | None = None) -> None:
        """The work failed for good; everybody is told so from now on. LeaseLost as for `complete`."""
        said = json.dumps(dict(error), ensure_ascii=False)
        self._settled("fail", ident, fence, run, lambda on, run, ident: on.settle(run, ident, fence, "failed", None, said, keep))

    def free(self, ident: Ident, fence: int, /, *, run: Runner | None = None) -> None:
        """Nothing was done that counts: the next caller begins anew. LeaseLost as for `complete`."""
        self._settled("free", ident, fence, run, lambda on, run, ident: on.free(run, ident, fence))

    def _settled(
        self,
        verb: str,
        ident: Ident,
        fence: int,
        run: Runner | None,
        settle: Callable[[OnSQLite | OnPostgres, Runner, Ident], bool],
    ) -> None:
        if run is not None:
            kept = settle(self._on, run, ident)
            crash_point(f"key.{verb}.in_caller")
        else:
            self.keeper.drop(ident, fence)
            crash_point(f"key.{verb}.before_commit")
            try:
                kept = self._settle_apart(ident, settle)
            except LedgerUnavailable as error:
                if not error.sent and not error.stale:
                    raise
                # The lost statement may have been executed: then the key is settled, or free, and that is all right.
                kept = self._settle_apart(ident, settle) or self._was_settled(ident, fence)
            crash_point(f"key.{verb}.after_commit")
        if not kept:
            raise LeaseLost(f"{ident} now belongs to another holder, because the lease of this one expired; nothing was changed")

    def _settle_apart(self, ident: Ident, settle: Callable[[OnSQLite | OnPostgres, Runner, Ident], bool]) -> bool:
        session = self._write.take()
        try:
            return settle(self._on, session.run, ident)
        except Exception as error:
            session.explain(error)
            raise
        finally:
            self._write.give(session)

    def _was_settled(self, ident: Ident, fence: int) -> bool:
        with self._write.use() as session:
            found = upkeep.find(session, ident)
        return found is None or (found.fence == fence and found.status != "processing")

    def renew(self, held: Sequence[tuple[Ident, int]], /) -> list[tuple[Ident, int]]:
        """Hold these longer; those that are lost. (The keeper does this by itself for what `begin` handed out.)"""
        # On a session of its own: the ledger's may all be in use by the very work whose leases are to be renewed.
        with self.ledger.connections.apart() as session, session.transaction("key.renew"):
            return self._on.renew(session.run, held, self.lease)

    @property
    def threads(self) -> ThreadPoolExecutor:
        """For event loops, which must not wait for a database. Made at first use; a forked child makes its own."""
        if self._threads is None or self._threads[0] != os.getpid():
            with LOCK:
                if self._threads is None or self._threads[0] != os.getpid():
                    self._threads = (os.getpid(), ThreadPoolExecutor(THREADS, "redrive-keys"))
        return self._threads[1]

    # ---- in a transaction ----

    @contextmanager
    def transaction(self) -> Iterator[tuple[Connection, Runner]]:
        """A transaction of the ledger's own, for an effect that commits with its key."""
        with self.ledger.begin() as connection:
            yield connection, connection.connection.driver_connection  # type: ignore[misc]  # as Session.raw

    def still_open(self, ident: Ident, run: Any, /) -> None:
        """Refuse to go on where the work has ended the transaction that it was given."""
        if not (run.in_transaction if self.on_sqlite else run.info.transaction_status):
            raise RuntimeError(
                f"{ident}: the function committed or rolled back the transaction that it received; "
                "its effect and its key are no longer atomic. Let redrive commit"
            )

    def joined(self, tx: Any, /) -> Runner:
        """The caller's own open transaction, made ready; TypeError or ValueError where it cannot be."""
        return self.ledger.joined(tx)

    # ---- for operators ----

    def find(self, key: KeyLike, /) -> KeyRecord | None:
        """A key, as it stands."""
        ident = Ident.of(key)
        with self._read.use() as session:
            return upkeep.find(session, ident)

    def page(
        self, *, domain: str | None = None, user: str | None = None, status: Status | None = None, abandoned: bool = False,
        after: KeyRecord | None = None, limit: int = 100,
    ) -> list[KeyRecord]:  # fmt: skip
        """Keys by domain, user and key, from behind the one given as `after`. abandoned: whose holder has crashed."""
        with self._read.use() as session:
            return upkeep.page(session, domain, user, status, abandoned, after, limit)

    def release(self, key: KeyLike, /, *, actor: str, because: str, force: bool = False) -> KeyRecord:
        """Forget what is known of a key: the next caller begins anew. Written in the audit.

        NotAllowed where a holder is at it right now, unless forced: the work would run twice at once.
        """
        ident = Ident.of(key)
        with self._write.use() as session:
            return upkeep.release(session, ident, actor=actor, because=because, force=force)

    def sweep(self, *, limit: int = 1000) -> int:
        """Remove keys whose time is over; how many. (The keeper does this now and then.)"""
        with self.ledger.connections.apart() as session:
            return upkeep.sweep(session, limit)

    def close(self) -> None:
        """End the threads. The ledger stays open."""
        self.keeper.close()
        if self._threads is not None and self._threads[0] == os.getpid():
            self._threads[1].shutdown()


_HOLDER = (0, "")
_NUMBERS = count(1)


def _holder() -> str:
    """This process, for people to find, and which of its beginnings: one whose answer was lost is known by it."""
    global _HOLDER  # noqa: PLW0603  # one for the process, anew in a forked child
    pid = os.getpid()
    if _HOLDER[0] != pid:
        _HOLDER = (pid, f"{socket.gethostname()}:{pid}/{secrets.token_hex(4)}")
    return f"{_HOLDER[1]}.{next(_NUMBERS)}"
