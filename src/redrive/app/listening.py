"""Listening: an app's handlers of events, and where events come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from .commanded import Commanded

if TYPE_CHECKING:
    import sqlalchemy

    from ..engine.retry import RetryLike
    from ..ledger.db.caller_transaction import Transaction
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
        """Register a handler for events, as a decorator.

        Each handler has its own job for each event. It is retried, dead-lettered and replayed
        independently of other handlers.

        Args:
            types: Event types to handle. `"*"` handles all types.
            name: Name of the handler. It is stored with every job. Default: the name of the
                function.
            in_transaction: Pass a connection as the first argument. The job is settled in its
                transaction, so that the effects happen once.
            retry: Policy of the durable attempts. Default: 5 attempts, with waits of 5 s, 30 s,
                2 min and 10 min. Errors are classified by the standard rule. Options that
                `retry(...)` does not set keep these defaults. A `RetryPolicy` replaces them.
            concurrency: Maximum number of jobs of this handler that run at the same time, over all
                workers. Default: no limit.

        Returns:
            A decorator that returns the function unchanged.
        """
        return self.inbox.handlers.decorator(
            types, name=name, retry=retry, concurrency=concurrency, in_transaction=in_transaction
        )

    def receive(self, event: Event[Any], /, *, tx: Transaction | None = None) -> bool:
        """Store an event and create a job for each of its handlers.

        Args:
            event: The event. Its `id` is unique within its `source`.
            tx: Your open transaction on the ledger's database. The event is stored when you commit
                it.

        Returns:
            False if the event is a duplicate. Nothing is changed then.
        """
        return self.inbox.receive(event, tx)

    async def areceive(self, event: Event[Any], /, *, tx: Any = None) -> bool:
        """Store an event and create a job for each of its handlers, from async code.

        Args:
            event: The event. Its `id` is unique within its `source`.
            tx: Your open `AsyncConnection` or `AsyncSession` on the ledger's database.

        Returns:
            False if the event is a duplicate. Nothing is changed then.
        """
        inbox = self.inbox
        if tx is None:
            return await self.commands.aio.run(inbox.receive, event)
        if not hasattr(tx, "run_sync"):
            raise TypeError(f"tx must be an AsyncConnection or an AsyncSession here, not {type(tx).__name__}")
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
