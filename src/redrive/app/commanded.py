"""Commanded: an app's durable commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from ..core.key import KeyOf
from .ledgered import Ledgered

if TYPE_CHECKING:
    from ..commands.command import Work
    from ..commands.decorator import CronDecorator, Decorator, TxDecorator
    from ..commands.job import Job
    from ..commands.registry import Registry
    from ..engine.retry import RetryLike
    from ..ledger.caller import Transaction


class Commanded(Ledgered):
    """What an app has of commands. A facet of App, which says who may share it."""

    _commands: Registry | None = None

    @overload
    def command(
        self, name: str, /, *, in_transaction: Literal[True], key: KeyOf | None = None, retry: RetryLike | None = None,
        concurrency: int | None = None, rate: float | None = None, priority: int = 0, spent: Literal["dead", "blocked"] = "dead",
    ) -> TxDecorator: ...  # fmt: skip
    @overload
    def command(
        self, name: str, /, *, cron: str, timezone: str = "UTC", retry: RetryLike | None = None,
        concurrency: int | None = None, rate: float | None = None, priority: int = 0, spent: Literal["dead", "blocked"] = "dead",
    ) -> CronDecorator: ...  # fmt: skip
    @overload
    def command(
        self, name: str, /, *, key: KeyOf | None = None, retry: RetryLike | None = None,
        concurrency: int | None = None, rate: float | None = None, priority: int = 0, spent: Literal["dead", "blocked"] = "dead",
    ) -> Decorator: ...  # fmt: skip
    def command(
        self, name: str, /, *, key: KeyOf | None = None, retry: RetryLike | None = None, concurrency: int | None = None,
        rate: float | None = None, priority: int = 0, spent: Literal["dead", "blocked"] = "dead", cron: str | None = None,
        timezone: str = "UTC", in_transaction: bool = False,
    ) -> Any:  # fmt: skip
        """Register a function as durable work: `@app.command("receipts.send", key="shop:{user}:{order_id}:receipt:v1")`.

        key: what makes two submissions the same work (default: every submission is new work).
        retry: durable attempts (default: 5, after 5 s, 30 s, 2 min and 10 min; errors by the standard rule).
        concurrency: how many at once, over all workers. rate: starts in a second, over all workers.
        priority: from -2, the first, to 2, the last. spent: what a command becomes when its attempts are spent.
        cron: a line of five fields by which it fires, in `timezone`; the function takes no arguments.
        in_transaction: the function gets a connection as its first argument, in whose transaction it is settled.
        """
        return self.commands.decorator(
            name, key=key, retry=retry, concurrency=concurrency, rate=rate, priority=priority, spent=spent, cron=cron,
            timezone=timezone, in_transaction=in_transaction,
        )  # fmt: skip

    @property
    def commands(self) -> Registry:
        """What was registered as durable work."""
        from ..commands.registry import Registry  # noqa: PLC0415  # brings SQLAlchemy

        with self._lock:
            if self._commands is None:
                self._commands = Registry(lambda: self.ledger)
            return self._commands

    def submit_many(self, works: Iterable[Work[Any]], /, *, tx: Transaction | None = None) -> list[Job[Any]]:
        """Many commands at once, all or none: `app.submit_many(send.bind(each) for each in orders)`."""
        return self.commands.submit_many(list(works), tx)
