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
    from ..ledger.db.caller_transaction import Transaction


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
        """Register a function as a job type, as a decorator.

            @app.command("receipts.send", key="shop:{user}:{order_id}:receipt:v1")
            def send_receipt(order_id: str, user: str) -> None: ...

        Args:
            name: Name of the job type. It is stored with every job, so keep it when you rename the
                function.
            key: Job key: a template over the parameters, or a function of them. Two submissions
                with the same key are one job. Default: every submission is a new job.
            retry: Policy of the durable attempts. Default: 5 attempts, with waits of 5 s, 30 s,
                2 min and 10 min. Errors are classified by the standard rule. Options that
                `retry(...)` does not set keep these defaults. A `RetryPolicy` replaces them.
            concurrency: Maximum number of jobs of this type that run at the same time, over all
                workers. Default: no limit.
            rate: Maximum number of jobs of this type that start in a second, over all workers.
                Default: no limit.
            priority: From -2 (first) to 2 (last).
            spent: State of a job whose attempts are used up: `"dead"` or `"blocked"`.
            cron: Schedule with five fields, such as `"0 6 * * *"`. The function then takes no
                arguments.
            timezone: Time zone of the schedule.
            in_transaction: Pass a connection as the first argument. The job is settled in the
                transaction of that connection.

        Returns:
            A decorator that turns the function into a `Command`.

        Raises:
            ValueError: The name is taken, or an option is not valid.
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
        """Submit many jobs in one transaction: all of them or none.

        Args:
            works: Submissions made by `Command.bind(...)`.
            tx: Your open transaction on the ledger's database. The jobs exist when you commit it.

        Returns:
            A handle for each job, in the order of `works`.
        """
        return self.commands.submit_many(list(works), tx)
