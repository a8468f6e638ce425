"""Signals: messages to a job that waits, or will wait, for them (`current().wait_for(...)`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

from ..core.codec import codec, misfit, to_bytes
from ..core.key import KeyLike
from ..core.lazy import deferred
from ..ledger.failpoint import crash_point
from ..ledger.validation import MAX_KIND_BYTES, check_name
from .options import key_text

if TYPE_CHECKING:
    from ..ledger.db import caller_transaction
    from ..ledger.db.caller_transaction import AsyncTransaction, Transaction
    from ..ledger.ledger import Ledger
    from ..ledger.store import signals
    from ..ledger.store.signals import SentSignal
    from .registry import CommandRegistry
else:  # they need SQLAlchemy
    caller_transaction, signals = deferred(
        "redrive.ledger", "db.caller_transaction", "store.signals"
    )

_ANY = codec(Any)


class _Commands(Protocol):
    """The part of an app that signals use."""

    @property
    def commands(self) -> CommandRegistry:
        """The registered commands."""


class SignalSender:
    """Sends signals to the jobs of an app. Threads and event loops may share it."""

    def signal(
        self: _Commands,
        key: KeyLike,
        name: str,
        payload: Any = None,
        *,
        kind: str | None = None,
        tx: Transaction | None = None,
    ) -> SentSignal:
        """Send a signal to the job of a key, once for its name.

        A job that waits for it continues at once. A signal that is sent before the job waits for
        it is stored, and so is one for a dead letter, for its replay.

        Args:
            key: Job key.
            name: Name of the signal.
            payload: Value that `wait_for` returns: text, numbers, lists or dicts.
            kind: Job type. Needed only if several job types have a job with this key.
            tx: Your open transaction on the ledger's database. The signal is sent when you commit
                it.

        Returns:
            The job, and whether the signal is new: the first one of a name counts.

        Raises:
            LookupError: No such job, several, or it has ended. Nothing was changed.
            TypeError: The payload cannot be stored, or a value is not text.
        """
        ledger = self.commands.ledger
        return send_signal(ledger, self.commands.names, key, name, payload, kind=kind, tx=tx)

    async def asignal(
        self: _Commands,
        key: KeyLike,
        name: str,
        payload: Any = None,
        *,
        kind: str | None = None,
        tx: AsyncTransaction | None = None,
    ) -> SentSignal:
        """Send a signal to the job of a key, from async code.

        Args:
            key: Job key.
            name: Name of the signal.
            payload: Value that `wait_for` returns.
            kind: Job type. Needed only if several job types have a job with this key.
            tx: Your open async transaction on the ledger's database.

        Returns:
            The job, and whether the signal is new.

        Raises:
            LookupError: No such job, several, or it has ended. Nothing was changed.
        """
        aio = self.commands.aio

        def send(connection: Any = None) -> SentSignal:
            names = self.commands.names
            return send_signal(aio.ledger, names, key, name, payload, kind=kind, tx=connection)

        if tx is None:
            return await aio.run(send)
        return await caller_transaction.run_in_caller(tx, send)


def send_signal(
    ledger: Ledger,
    names: Collection[str],
    key: KeyLike,
    name: str,
    payload: Any,
    /,
    *,
    kind: str | None = None,
    tx: Transaction | None = None,
) -> SentSignal:
    """Send a signal to the job of a key, of this job type or of any known one."""
    stored = signal_payload(name, payload)
    signals.check_signal(name, stored, ledger.max_payload)
    if kind is not None:
        check_name(f"signal {name!r}: kind", kind, MAX_KIND_BYTES)
    kinds = [kind] if kind is not None else sorted({*names, *ledger.counts()})
    is_sqlite = ledger.connections.on_sqlite
    if tx is not None:
        run = ledger.connections.adopt_transaction(tx)
        sent = signals.send_to_key(run, kinds, key_text(key), name, stored, sqlite=is_sqlite)
        crash_point("signal.in_caller")
        return sent
    with ledger.connections.write.use() as session, session.transaction("signal"):
        sent = signals.send_to_key(
            session.run, kinds, key_text(key), name, stored, sqlite=is_sqlite
        )
    ledger.notify()
    return sent


def signal_payload(name: str, payload: Any, /) -> bytes | None:
    """Return the stored form of a payload.

    Raises:
        TypeError: It cannot be stored.
    """
    try:
        return None if payload is None else to_bytes(_ANY.dump(payload))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"signal {name!r}: the payload cannot be stored: {misfit(error)}; nothing was changed"
        ) from None
