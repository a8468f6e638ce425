"""Listening: an app's handlers of events, and where events come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from .commanded import Commanded

if TYPE_CHECKING:
    import sqlalchemy

    from ..engine.retry import RetryLike
    from ..ledger.caller import Transaction
    from ..messages.event import Event
    from ..messages.inbox import Inbox
    from ..messages.source import Source

    H = TypeVar("H", bound=Callable[[Event[Any]], object])
    HTx = TypeVar("HTx", bound=Callable[[sqlalchemy.Connection, Event[Any]], object])


class Listening(Commanded):
    """What an app has of messages. A facet of App, which says who may share it."""

    _inbox: Inbox | None = None
    _sources: Sequence[Source] = ()

    @overload
    def on(
        self, *types: str, name: str | None = None, in_transaction: Literal[True], retry: RetryLike | None = None,
        concurrency: int | None = None,
    ) -> Callable[[HTx], HTx]: ...  # fmt: skip
    @overload
    def on(
        self, *types: str, name: str | None = None, in_transaction: Literal[False] = False, retry: RetryLike | None = None,
        concurrency: int | None = None,
    ) -> Callable[[H], H]: ...  # fmt: skip
    def on(
        self, *types: str, name: str | None = None, in_transaction: bool = False, retry: RetryLike | None = None,
        concurrency: int | None = None,
    ) -> Any:  # fmt: skip
        """Handle events of these types ("*": of all): `@app.on("session.completed", name="qscore")`.

        Each handler is run, retried, dead-lettered and replayed by itself, under its name (default: the function's).
        retry: durable attempts (default: 5, after 5 s, 30 s, 2 min and 10 min; errors by the standard rule).
        concurrency: how many at once, over all workers.
        in_transaction: the function gets a connection first, in whose transaction it is settled: its effects happen once.
        """
        return self.inbox.handlers.decorator(
            types, name=name, retry=retry, concurrency=concurrency, in_transaction=in_transaction
        )

    def receive(self, event: Event[Any], /, *, tx: Transaction | None = None) -> bool:
        """Store an event and make its handlers' jobs. False: it was known already, and nothing was done.

        tx: an open transaction of yours on the ledger's database, with which it is stored.
        """
        return self.inbox.receive(event, tx)

    async def areceive(self, event: Event[Any], /, *, tx: Any = None) -> bool:
        """The same for event loops. tx: an AsyncConnection or an AsyncSession."""
        inbox = self.inbox
        if tx is None:
            return await self.commands.aio.run(inbox.receive, event)
        if not hasattr(tx, "run_sync"):
            raise TypeError(f"tx is an AsyncConnection or an AsyncSession here, not {type(tx).__name__}")
        found: bool = await tx.run_sync(lambda connection: inbox.receive(event, connection))
        return found

    @property
    def inbox(self) -> Inbox:
        """Where events are stored, and who handles them."""
        found = self._inbox
        if found is not None:
            return found
        from ..messages.handlers import Handlers  # noqa: PLC0415  # brings SQLAlchemy
        from ..messages.inbox import Inbox  # noqa: PLC0415

        commands = self.commands
        with self._lock:
            if self._inbox is None:
                names = [source.name for source in self._sources]
                self._inbox = Inbox(lambda: self.ledger, Handlers(commands.place), names)
            return self._inbox
