"""Keys: the idempotency keys of a ledger.

A caller begins a key and gets a lease with a fencing token, or the result of an earlier caller. The
holder of the lease settles the key: complete, fail or free.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection

from ..core.key import KeyLike
from ..core.lock import LOCK
from ..errors import LeaseLost, LedgerUnavailable
from ..ledger.db.compiled import Runner
from ..ledger.failpoint import crash_point
from ..ledger.ledger import Ledger
from ..ledger.validation import check_payload
from . import maintenance
from .lease_renewer import LeaseRenewer
from .record import (
    BeginResult,
    BeginTerms,
    KeyId,
    KeyRecord,
    KeyResult,
    KeyRow,
    LeasedKey,
    Status,
    decide,
    retry_at,
)
from .store import key_store_for

T = TypeVar("T")
Settle: TypeAlias = Callable[[Runner], bool]
"""Settles a key on a connection. False: the key belongs to another holder."""
MAX_UNCONFIRMED = 1000
"""Maximum number of keys with an unknown result of `begin` that are remembered."""
LEASE_SECONDS = 30.0
"""Time after which the key of a crashed holder is free. Leases are renewed after a third of it."""
EXECUTOR_THREADS = 4
MAX_DOMAINS = 1000
"""Maximum number of domains for which the last outcome is remembered."""
MAX_BEGIN_ROUNDS = 20
"""Maximum number of reads of a key while other callers are faster each time."""


class Keys:
    """The idempotency keys of a ledger.

    Its methods block. Threads and forked children may share it.
    """

    def __init__(self, ledger: Ledger, /, *, lease: float = LEASE_SECONDS) -> None:
        """Create the keys of a ledger.

        Args:
            ledger: The ledger.
            lease: Seconds after which the key of a crashed holder is free.
        """
        self.ledger = ledger
        self.lease = lease
        # An operation on a key is a statement or two: it runs on the ledger's own sessions.
        self._write, self._read = ledger.connections.write, ledger.connections.read
        self._store = key_store_for(ledger.connections)
        self.has_single_writer = self._store.has_single_writer
        """Only one transaction can write at a time, and readers do not wait for it."""
        self._was_last_new: dict[str, bool] = {}
        self._unconfirmed: dict[KeyId, str] = {}
        """Keys that may have been begun on a lost connection, with their holders.

        No work was done under them.
        """
        self._executor: tuple[int, ThreadPoolExecutor] | None = None
        self.renewer = LeaseRenewer(self.renew, self.sweep, lease, self.free_unconfirmed)

    # ---- begin ----

    def begin(
        self,
        key: KeyId,
        request_hash: bytes | None = None,
        /,
        *,
        keep: float,
        run: Runner | None = None,
    ) -> BeginResult:
        """Begin a key.

        A caller with the outcome `fresh` holds the key until it settles it or its lease expires.

        Args:
            key: The key.
            request_hash: Fingerprint of the request. None: nothing is compared.
            keep: Seconds for which the key is stored.
            run: Transaction that holds the key instead of a lease, and in which it is settled.
        """
        if run is not None:
            terms = BeginTerms(request_hash, _new_holder(), self.lease, keep)
            result = self._begin_on(run, key, terms, in_caller=True)
            crash_point("key.begin.in_caller")
            return result
        if self.has_single_writer and not self.is_likely_new(key):
            earlier = self.peek(key, request_hash)  # readers do not wait for the writer
            if earlier is not None:
                return earlier
        crash_point("key.begin.before_commit")
        terms = BeginTerms(request_hash, _new_holder(), self.lease, keep)
        if key in self._unconfirmed:
            self._free_unconfirmed(key)
        try:
            result = self._begin_alone(key, terms)
        except LedgerUnavailable as error:
            if not error.sent and not error.stale:
                raise
            result = self._begin_after_lost_connection(key, terms)
        if result.outcome == "fresh":
            crash_point("key.begin.after_commit")
            self.renewer.add(key, result.fence)
        return result

    def _begin_alone(self, key: KeyId, terms: BeginTerms) -> BeginResult:
        return self._on_session(lambda run: self._begin_on(run, key, terms, in_caller=False))

    def _on_session(self, act: Callable[[Runner], T]) -> T:
        """Run statements on a session of the ledger."""
        session = self._write.acquire()
        try:
            return act(session.run)
        except Exception as error:
            session.explain(error)
            raise
        finally:
            self._write.release(session)

    def _begin_after_lost_connection(self, key: KeyId, terms: BeginTerms) -> BeginResult:
        """Begin again. The lost statement may have begun the key for this caller."""
        try:
            own = _result_of_holder(self._read_record(key), terms.holder)
            result = own or self._begin_alone(key, terms)
            if result.outcome == "busy":  # the lost statement may have been executed in between
                result = _result_of_holder(self._read_record(key), terms.holder) or result
        except LedgerUnavailable:
            while len(self._unconfirmed) >= MAX_UNCONFIRMED:
                oldest = next(iter(self._unconfirmed))
                self._unconfirmed.pop(oldest, None)  # its lease expires first
            self._unconfirmed[key] = terms.holder
            self.renewer.watch_unconfirmed()
            raise
        return result

    def _free_unconfirmed(self, key: KeyId) -> None:
        """Free a key that this process may have begun on a lost connection."""
        holder = self._unconfirmed.get(key)
        own = None if holder is None else _result_of_holder(self._read_record(key), holder)
        if own is not None:
            self._on_session(lambda run: self._store.free(run, key, own.fence))
        self._unconfirmed.pop(key, None)

    def free_unconfirmed(self) -> None:
        """Free all keys that this process may have begun on lost connections.

        The lease renewer calls this when the ledger is available again.
        """
        if not self._unconfirmed:
            return
        # On a session of its own, as `renew`. A holder stands for one `begin`: later ones are safe.
        with self.ledger.connections.own_session() as session:
            for key, holder in list(self._unconfirmed.items()):
                own = _result_of_holder(maintenance.find(session, key), holder)
                if own is not None:
                    self._store.free(session.run, key, own.fence)
                if self._unconfirmed.get(key) == holder:
                    self._unconfirmed.pop(key, None)

    def _read_record(self, key: KeyId) -> KeyRecord | None:
        """Read a key on a writing session, which sees the last commits."""
        with self._write.use() as session:
            return maintenance.find(session, key)

    def _begin_on(
        self, run: Runner, key: KeyId, terms: BeginTerms, *, in_caller: bool
    ) -> BeginResult:
        # With a single writer, `begin` has already read a key that is likely to exist. And the
        # first statement of a transaction must be a write: one that begins by reading may not be
        # able to write later.
        inserts_first = self.has_single_writer or self.is_likely_new(key)
        fence = self._store.insert(run, key, terms, in_caller=in_caller) if inserts_first else None
        result = None if fence is None else BeginResult("fresh", fence)
        if result is None:
            result = self._read_and_begin(run, key, terms, in_caller=in_caller)
        self._was_last_new[key.domain] = result.outcome == "fresh"
        return result

    def _read_and_begin(
        self, run: Runner, key: KeyId, terms: BeginTerms, *, in_caller: bool
    ) -> BeginResult:
        for round_ in range(MAX_BEGIN_ROUNDS):
            values = self._store.read(run, key)
            row = None if values is None else KeyRow._make(values)
            if row is None:
                fence = self._store.insert(run, key, terms, in_caller=in_caller)
            else:
                result = decide(row, terms.request_hash, self.lease)
                if result is not None:
                    return result
                fence = self._store.take_over(run, key, row, terms, in_caller=in_caller)
            if fence is not None:
                was_processing = row is not None and row.status == "processing"
                return BeginResult("fresh", fence, taken_over=was_processing)
            # Another caller was faster: read again. If there is nothing to read the second time,
            # the key is in a transaction that is still open.
            if in_caller and round_:
                break
        return BeginResult("busy", retry_at=retry_at(None, self.lease))

    def peek(self, key: KeyId, request_hash: bytes | None = None, /) -> BeginResult | None:
        """Return the result of `begin` without changing anything. None: the caller could begin."""
        # Reject a thread that could not begin, even if the key is completed.
        self._write.assert_not_nested()
        session = self._read.acquire()  # a `with` would cost 10 % of this method
        try:
            values = self._store.read(session.run, key)
        finally:
            self._read.release(session)
        return None if values is None else decide(values, request_hash, self.lease)

    def is_likely_new(self, key: KeyId, /) -> bool:
        """Return whether the last key of this domain was new.

        Then this one is probably new too, and a read before the insert would waste a round trip.
        """
        if len(self._was_last_new) > MAX_DOMAINS:
            self._was_last_new.clear()
        return self._was_last_new.get(key.domain, True)

    # ---- settle ----

    def complete(
        self,
        key: KeyId,
        fence: int,
        response: bytes | None,
        /,
        *,
        keep: float,
        run: Runner | None = None,
    ) -> None:
        """Store the response of the work, as JSON.

        Raises:
            LeaseLost: The key belongs to another holder. Nothing was changed.
        """
        if response is not None:
            check_payload("response", response, self.ledger.max_payload)
        result = KeyResult("completed", response, None, keep)
        self._settle(
            "complete", key, fence, run, lambda run: self._store.settle(run, key, fence, result)
        )

    def fail(
        self,
        key: KeyId,
        fence: int,
        error: Mapping[str, Any],
        /,
        *,
        keep: float,
        run: Runner | None = None,
    ) -> None:
        """Store a permanent failure. Raises `LeaseLost` as `complete` does."""
        result = KeyResult("failed", None, json.dumps(dict(error), ensure_ascii=False), keep)
        self._settle(
            "fail", key, fence, run, lambda run: self._store.settle(run, key, fence, result)
        )

    def free(self, key: KeyId, fence: int, /, *, run: Runner | None = None) -> None:
        """Delete the key, so that the next caller begins. Raises `LeaseLost` as `complete` does."""
        self._settle("free", key, fence, run, lambda run: self._store.free(run, key, fence))

    def _settle(
        self, verb: str, key: KeyId, fence: int, run: Runner | None, settle: Settle
    ) -> None:
        if run is not None:
            is_own = settle(run)
            crash_point(f"key.{verb}.in_caller")
        else:
            self.renewer.remove(key, fence)
            crash_point(f"key.{verb}.before_commit")
            try:
                is_own = self._on_session(settle)
            except LedgerUnavailable as error:
                if not error.sent and not error.stale:
                    raise
                # The lost statement may have been executed. The key is then already settled.
                is_own = self._on_session(settle) or _is_settled(self._read_record(key), fence)
            crash_point(f"key.{verb}.after_commit")
        if not is_own:
            raise LeaseLost(
                f"{key} now belongs to another holder, because the lease of this one expired; "
                "nothing was changed"
            )

    def renew(self, leased: Sequence[LeasedKey], /) -> list[LeasedKey]:
        """Extend leases and return the lost ones. The lease renewer calls this."""
        # On a session of its own: the work whose leases are renewed may use all others.
        with self.ledger.connections.own_session() as session, session.transaction("key.renew"):
            return self._store.renew(session.run, leased, self.lease)

    @property
    def executor(self) -> ThreadPoolExecutor:
        """Threads that wait for the database on behalf of event loops.

        A forked child makes its own.
        """
        if self._executor is None or self._executor[0] != os.getpid():
            with LOCK:
                if self._executor is None or self._executor[0] != os.getpid():
                    self._executor = (
                        os.getpid(),
                        ThreadPoolExecutor(EXECUTOR_THREADS, "redrive-keys"),
                    )
        return self._executor[1]

    # ---- transactions ----

    @contextmanager
    def transaction(self) -> Iterator[tuple[Connection, Runner]]:
        """Open a transaction of the ledger, for an effect that commits with its key."""
        with self.ledger.begin() as connection:
            yield connection, connection.connection.driver_connection  # type: ignore[misc]  # as Session.raw

    def check_transaction_open(self, key: KeyId, run: Any, /) -> None:
        """Raise RuntimeError if the work has ended the transaction that it received."""
        if not self._store.is_in_transaction(run):
            raise RuntimeError(
                f"{key}: the function committed or rolled back the transaction that it received; "
                "its effect and its key are no longer atomic. Let redrive commit"
            )

    # ---- for operators ----

    def find(self, key: KeyLike, /) -> KeyRecord | None:
        """Return the record of a key, or None."""
        key_id = KeyId.of(key)
        with self._read.use() as session:
            return maintenance.find(session, key_id)

    def page(
        self,
        *,
        domain: str | None = None,
        user: str | None = None,
        status: Status | None = None,
        abandoned: bool = False,
        after: KeyRecord | None = None,
        limit: int = 100,
    ) -> list[KeyRecord]:
        """Return records by domain, user and key.

        Args:
            domain: Only keys of this domain.
            user: Only keys of this user.
            status: Only keys with this status.
            abandoned: Only keys whose holder has crashed.
            after: The last record of the previous page.
            limit: Maximum number of records.
        """
        with self._read.use() as session:
            return maintenance.page(
                session,
                domain=domain,
                user=user,
                status=status,
                abandoned=abandoned,
                after=after,
                limit=limit,
            )

    def release(
        self, key: KeyLike, /, *, actor: str, because: str, force: bool = False
    ) -> KeyRecord:
        """Delete a key, so that the next caller begins, with an entry in the audit log.

        Raises:
            NotAllowed: The key does not exist, or a holder is running. With `force` the key of a
                holder is released, and the work may run twice at once.
        """
        key_id = KeyId.of(key)
        with self._write.use() as session:
            return maintenance.release(session, key_id, actor=actor, because=because, force=force)

    def sweep(self, *, limit: int = 1000) -> int:
        """Remove expired keys and return their number.

        The lease renewer calls this every minute.
        """
        with self.ledger.connections.own_session() as session:
            return maintenance.sweep(session, limit)

    def close(self) -> None:
        """End the threads. The ledger stays open."""
        self.renewer.close()
        if self._executor is not None and self._executor[0] == os.getpid():
            self._executor[1].shutdown()


def _is_settled(record: KeyRecord | None, fence: int) -> bool:
    return record is None or (record.fence == fence and record.status != "processing")


def _result_of_holder(record: KeyRecord | None, holder: str) -> BeginResult | None:
    """Return the fresh result of a holder that has the key."""
    if record is None or record.holder != holder:
        return None
    is_held = record.status == "processing" and not record.abandoned
    return BeginResult("fresh", record.fence) if is_held else None


_PROCESS_NAME = (0, "")
_BEGIN_NUMBERS = count(1)


def _new_holder() -> str:
    """Return a name for one `begin`: host and process, a random part, and a number.

    A `begin` whose result was lost is recognised by it.
    """
    global _PROCESS_NAME  # noqa: PLW0603  # one for the process, a new one in a forked child
    pid = os.getpid()
    if _PROCESS_NAME[0] != pid:
        _PROCESS_NAME = (pid, f"{socket.gethostname()}:{pid}/{secrets.token_hex(4)}")
    return f"{_PROCESS_NAME[1]}.{next(_BEGIN_NUMBERS)}"
