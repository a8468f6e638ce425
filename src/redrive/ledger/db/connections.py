"""Connections: what a ledger keeps open at its address, once it is known to be a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from ...errors import LedgerError, LedgerRemoved, LedgerUnavailable
from ..jobs import secret_names
from ..notify import Bell, Listening, Looking, Told, Wake
from ..store.protocol import Hot
from . import postgres, schema, sqlite
from .address import Address
from .fork import close_before_fork
from .session import Pool, Session
from .silence_watch import Watch

MOST = 8
"""To Postgres, for one ledger."""
OWN = 8
"""Sessions to a SQLite file for what must not wait for others, such as the renewal of leases."""


class Connections:
    """Threads may share them; a forked child gets its own (where the ledger is not in memory).

    For the parts of redrive that keep tables of their own beside the ledger's: `with ledger.connections.write.use() as session`.
    """

    def __init__(self, address: Address, *, migrate: bool) -> None:
        self._engine: Engine
        self._watch: Watch | None = None
        self._file: tuple[int, int] | None = None
        on_sqlite = address.dialect == "sqlite"
        if on_sqlite:
            # Create the file only while the ledger is opened: later, a missing file was removed.
            self._engine = sqlite.engine(address.target, create=lambda: migrate and self._file is None)
        else:
            self._watch = Watch()
            self._engine = postgres.engine(address.target, pooled=address.pooled, watch=self._watch)
        # SQLite has one writer at a time: let them queue here, where they wake each other, and not in the file.
        self.write = Pool(
            self.session, 1 if on_sqlite else MOST, forks=not address.in_memory, check=self._still_there if on_sqlite else None
        )
        self.read = Pool(self.session, 2) if on_sqlite and not address.in_memory else self.write
        # Who writes for all waits for none of those who wait for it.
        self.gathered = self.write if on_sqlite else Pool(self.session, 1)
        if not on_sqlite:
            self.write.beside, self.gathered.beside = (self.gathered,), (self.write,)
        self.address = address
        # What needs a session of its own waits for none of those above.
        self._own = Pool(self.session, OWN) if on_sqlite and not address.in_memory else None
        if self._own is not None:
            for pool in (self.write, self.read, self._own):
                close_before_fork(pool)
        try:
            with self.write.use() as session:
                if migrate or address.in_memory:
                    schema.migrate(session, shown=address.shown)
                else:
                    schema.check(session.core, address.shown)
                secret_names.learn(session.core)
                if on_sqlite:
                    sqlite.durable(session)
                    self.address = address._replace(target=sqlite.file_of(session))
                    self._file = sqlite.identity(self.address.target)
        except BaseException:
            self.close()
            raise

    @cached_property
    def hot(self) -> Hot:
        """The statements of workers and submitters. Compiled at first use: a program that only looks needs none of them."""
        if self.on_sqlite:
            from ..store.sqlite.store import OnSQLite  # noqa: PLC0415

            return OnSQLite()
        from ..store.postgres.store import OnPostgres  # noqa: PLC0415

        return OnPostgres()

    @property
    def on_sqlite(self) -> bool:
        """On SQLite; else on Postgres."""
        return self.address.dialect == "sqlite"

    def _still_there(self) -> None:
        if self._file is None:
            return
        file = self.address.target
        current = sqlite.identity(file)
        if current is None:
            raise LedgerRemoved(sqlite.missing(file))
        if current != self._file:
            raise LedgerRemoved(
                f"{file} was replaced while it was open, so new writes would be lost; "
                "restart this program, which then opens the new file"
            )

    def session(self) -> Session:
        """One more, outside of the pools; whoever asks for it closes it."""
        self._still_there()
        try:
            return Session(self._engine.connect(), self._watch)
        except LedgerError:
            self._still_there()  # the file may have been removed since the check
            raise
        except DBAPIError as error:
            raise LedgerUnavailable(f"the ledger cannot be opened: {error.orig}") from error
        finally:
            if self._watch is not None:
                self._watch.end_opening()

    def hurry(self, seconds: float, /) -> None:
        """From now on, cut connections on which a statement was not answered for so long. From any thread."""
        if self._watch is not None:
            self._watch.hurry(seconds)

    def wake(self, bell: Bell, /) -> Wake:
        """What tells a worker that something was submitted."""
        if self.address.in_memory or self.address.pooled:  # LISTEN would be somebody else's: what others submit is polled for
            return Told(bell)
        if self.on_sqlite:
            own = Pool(self.session, 1)
            close_before_fork(own)
            return Looking(own, bell)
        return Listening(self.session())

    def own_sessions(self, what: str, /) -> None:
        """LedgerError where a pooler gives our sessions to others: what needs one of its own is not to be had."""
        if self.address.pooled:
            raise LedgerError(f"{what} through a pooler in transaction mode; pass the address of the server itself")

    @contextmanager
    def apart(self) -> Iterator[Session]:
        """A session for the block that waits for none of the pools'; one in memory has no other."""
        if self.address.in_memory:
            with self.write.use() as session:
                yield session
            return
        if self._own is not None:
            with self._own.use() as session:
                yield session
            self._own.forget()
            return
        session = self.session()
        try:
            yield session
        finally:
            session.close()

    def close(self) -> None:
        """Close all; what is in use is closed when it comes back."""
        self.write.close()
        self.read.close()
        self.gathered.close()
        if self._own is not None:
            self._own.close()
