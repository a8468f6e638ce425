"""App: the root object that holds the ledger and the registered functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from ..commands.options import CommandOptions
from ..commands.signals import SignalSender
from ..core.key import Key, KeyOf
from ..core.lazy import deferred
from ..core.seconds import Seconds
from ..journal.bus import subscribe
from ..journal.redaction import hide
from ..storage.registry import Registry as StoreRegistry
from ..storage.registry import to_registry
from .idempotency import IdempotencyMethods
from .ledger_opener import LedgerOpener
from .registrations import Registrations

if TYPE_CHECKING:
    from ..batch.store import ledger as ledger_items
    from ..batch.store.ledger import LedgerItems
    from ..commands.command import BoundCommand, CommandDecorator, ScheduledDecorator, TxDecorator
    from ..commands.job import Job
    from ..commands.registry import CommandRegistry
    from ..core.outage import Parking
    from ..engine.retry import RetryLike
    from ..journal.record import Sink
    from ..ledger.db.caller_transaction import AsyncTransaction, Transaction
    from ..ledger.jobs import spill
    from ..ledger.jobs.spill import SpillToJob
    from ..ledger.ledger import Ledger
    from ..ledger.model import NewJob
    from ..messages.event import Event
    from ..messages.handlers import EventHandler, TxEventHandler
    from ..messages.publish import Destination
    from ..messages.source import Source
    from ..partitions.datasets.dataset import Dataset, Datasets, Extract
    from ..partitions.model import Check
    from ..storage.store import Store
    from ..temporal.engine import Temporal
    from ..worker import worker as workers
    from ..worker.job_type import JobType
    from ..worker.worker import Worker
    from . import worker_setup
else:  # they need SQLAlchemy, which takes longer to import than the rest of a program
    (ledger_items,) = deferred("redrive.batch.store", "ledger")
    (spill,) = deferred("redrive.ledger.jobs", "spill")
    (workers,) = deferred("redrive.worker", "worker")
    (worker_setup,) = deferred(__package__, "worker_setup")

F = TypeVar("F", bound=Callable[..., Any])
DAY = timedelta(days=1)
WEEK = timedelta(days=7)


class App(SignalSender, IdempotencyMethods):
    """The root object: holds the ledger, the registered functions and the settings.

    Creating an App opens nothing: no file, no socket, no thread. The ledger is opened at first use.
    An App is a context manager that closes what it opened.

    Threads and event loops may share it. A forked child may keep using it and gets its own
    connections.
    """

    def __init__(
        self,
        ledger: str | Ledger | Callable[[], str] | None = None,
        /,
        *,
        migrate: bool | None = None,
        include: Sequence[str] = (),
        stores: StoreRegistry | Mapping[str, Any] | None = None,
        sources: Sequence[Source] = (),
        destinations: Sequence[Destination] = (),
        secrets: Collection[str] = (),
        parking: Parking | None = None,
        keep: Seconds | None = None,
        journal: Sequence[Sink] = (),
        engine: Temporal | None = None,
    ) -> None:
        """Configure the ledger and the workers of this app.

        Args:
            ledger: URL of the ledger, a function that returns it when the ledger is opened, or an
                open `Ledger`. Default: `REDRIVE_LEDGER`, then `redrive.toml`, then
                `sqlite:///redrive.db`.
            migrate: Create or upgrade the tables at first use. Default: True on SQLite, False on
                Postgres. Where it is False, a missing or old schema is an error that names the
                command to run.
            include: Modules that register functions. They are imported when a worker, the console
                or the CLI starts.
            stores: Storage by name, such as `{"raw": {"type": "local", "options": {"root":
                "raw"}}}`, or a `storage.Registry`.
            sources: Message sources that workers read, such as `[RedisStream("redis://localhost",
                "shop.events", group="shop")]`.
            destinations: Streams, queues and topics for `publish`. Sources of this app that can be
                published to need not be repeated here.
            secrets: Names of fields that must never appear in log records, stored errors or the
                console. They are added to the standard list.
            parking: When workers treat failures as an outage. Default: 10 jobs, 90 % of recent
                ones. Use `Parking.disabled()` to switch it off.
            keep: How long workers keep done jobs and events before they prune them. Default: 30
                days. Use `math.inf` to keep them for ever.
            journal: Sinks for the log records of this process, such as `[journal.prometheus()]`.
                They are unsubscribed when the app is closed.
            engine: Runs the commands instead of the ledger, such as
                `Temporal("localhost:7233", namespace="shop")`. Dead letters stay in the ledger.

        Raises:
            TypeError: `include` or `secrets` is a single string, or `ledger` is neither a URL nor a
                ledger.
            ValueError: The URL is not valid.
        """
        self.opener = opener = LedgerOpener(ledger, migrate, secrets)
        self.stores = to_registry(stores)
        if engine is not None and not hasattr(engine, "task_queue"):
            raise TypeError(f"App: engine= must be a Temporal(...) or None, not {engine!r}")
        self.registrations = Registrations(
            opener.ledger, lambda: self.stores, include, sources, destinations, engine
        )
        self._parking, self._keep = parking, keep
        if secrets:
            hide(*secrets)
        self._unsubscribe = [subscribe(sink) for sink in journal]

    @property
    def url(self) -> str:
        """Address of the ledger, without its password."""
        return self.opener.url

    @property
    def ledger(self) -> Ledger:
        """The ledger, opened at first use."""
        return self.opener.ledger()

    def migrate(self) -> None:
        """Create the ledger's tables, or upgrade them to this version of Redrive."""
        self.opener.migrate()

    def close(self) -> None:
        """Close the connections that this app opened.

        An app that is used again opens them again. A `Ledger` that was passed in stays open.
        """
        self.registrations.close()
        self.opener.close()
        self.stores.close()
        while self._unsubscribe:
            self._unsubscribe.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<App {self.url}>"

    # --- Workers

    def kinds(self, only: Collection[str] | None = None, /) -> list[JobType]:
        """Return the registered job types, or these of them. Imports the modules of `include`."""
        return self.registrations.job_types(only)

    def worker(
        self,
        *,
        threads: int = 8,
        processes: int | None = None,
        only: Collection[str] | None = None,
        drain: Seconds = 30,
        name: str | None = None,
        executor: str | None = None,
    ) -> Worker:
        """Return a worker that runs in the background while its block is open.

        Use it as `with app.worker():`. `redrive work module:app` runs a worker as a process.

        Args:
            threads: Maximum number of sync functions that run at the same time.
            processes: Maximum number of commands with `isolation="process"` that run at the same
                time. Default: the number of cores.
            only: Names of the job types and datasets to run. Default: all that are registered.
            drain: Seconds that running jobs get at the end of the block. A job that has not ended
                by then is returned to the queue. That does not count as an attempt.
            name: Name of the worker in the console and the CLI. Default: host name and process id.
            executor: Address of a Dask scheduler, as `dask://host:8786`. Extractions of datasets
                run there. Default: in this process.

        Returns:
            The worker, not started yet.

        Raises:
            ImportError: `executor` needs the extra `dask`.
            ValueError: `only` names a job type that is not registered, or `executor` is not a
                valid address.
        """
        job_types = self.kinds(only)
        setup = worker_setup.WorkerSetup(self.registrations, self.ledger, self._parking, self._keep)
        return setup.make_worker(
            job_types,
            only,
            threads=threads,
            processes=processes,
            drain=drain,
            name=name,
            executor=executor,
        )

    def work(
        self,
        *,
        threads: int = 8,
        processes: int | None = None,
        only: Collection[str] | None = None,
        drain: Seconds = 30,
        name: str | None = None,
        executor: str | None = None,
    ) -> None:
        """Run a worker until SIGTERM or SIGINT, then drain it.

        A second signal stops it at once. `redrive work module:app` does the same.

        Args:
            threads: Maximum number of sync functions that run at the same time.
            processes: Maximum number of commands with `isolation="process"` that run at the same
                time. Default: the number of cores.
            only: Names of the job types and datasets to run. Default: all that are registered.
            drain: Seconds that running jobs get after the signal. A job that has not ended by then
                is returned to the queue. That does not count as an attempt.
            name: Name of the worker in the console and the CLI. Default: host name and process id.
            executor: Address of a Dask scheduler, as `dask://host:8786`. Extractions of datasets
                run there. Default: in this process.
        """
        worker = self.worker(
            threads=threads,
            processes=processes,
            only=only,
            drain=drain,
            name=name,
            executor=executor,
        )
        workers.run_until_signal(worker)

    # --- Commands

    # fmt: off
    @overload
    def command(
        self, name: str, /, *, in_transaction: Literal[True], key: KeyOf | None = None,
        retry: RetryLike | None = None, concurrency: int | None = None, rate: float | None = None,
        priority: int = 0, spent: Literal["dead", "blocked"] = "dead",
        tags: Collection[str] = (), tenant: str | None = None, sequence: str | None = None,
        tenant_concurrency: int | None = None, tenant_rate: float | None = None,
    ) -> TxDecorator: ...
    @overload
    def command(
        self, name: str, /, *, cron: str, timezone: str = "UTC", retry: RetryLike | None = None,
        concurrency: int | None = None, rate: float | None = None, priority: int = 0,
        spent: Literal["dead", "blocked"] = "dead",
        isolation: Literal["process"] | None = None, memory_limit: str | int | None = None,
    ) -> ScheduledDecorator: ...
    @overload
    def command(
        self, name: str, /, *, key: KeyOf | None = None, retry: RetryLike | None = None,
        concurrency: int | None = None, rate: float | None = None, priority: int = 0,
        spent: Literal["dead", "blocked"] = "dead", tags: Collection[str] = (),
        isolation: Literal["process"] | None = None, memory_limit: str | int | None = None,
        tenant: str | None = None, tenant_concurrency: int | None = None,
        tenant_rate: float | None = None, sequence: str | None = None,
    ) -> CommandDecorator: ...
    def command(
        self, name: str, /, *, key: KeyOf | None = None, retry: RetryLike | None = None,
        concurrency: int | None = None, rate: float | None = None, priority: int = 0,
        spent: Literal["dead", "blocked"] = "dead", cron: str | None = None,
        timezone: str = "UTC", in_transaction: bool = False, tags: Collection[str] = (),
        isolation: Literal["process"] | None = None, memory_limit: str | int | None = None,
        tenant: str | None = None, tenant_concurrency: int | None = None,
        tenant_rate: float | None = None, sequence: str | None = None,
    ) -> Any:
    # fmt: on
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
            tags: Names of parameters by whose values jobs are found, such as `("order_id",)`.
                An attribute of a parameter is `"order.id"`. They are stored as text.
            isolation: `"process"` runs a sync function in a process of its own, which is killed
                when the attempt times out or the job is cancelled. Default: in a thread.
            memory_limit: Maximum memory of that process, such as `"512MB"` or a number of bytes.
                Needs Linux. Default: no limit.
            tenant: Template, such as `"{user}"`. Tenants share the workers fairly.
            tenant_concurrency: Maximum number of running jobs of one tenant, over all workers.
            tenant_rate: Maximum number of starts of one tenant in a second, over all workers.
            sequence: Template, such as `"{account}"`. Jobs of one sequence run one after another.

        Returns:
            A decorator that turns the function into a `Command`.

        Raises:
            ValueError: The name is taken, or an option is not valid.
        """
        options = CommandOptions(
            key, retry, concurrency, rate, priority, spent, cron, timezone, in_transaction, tags,
            isolation, memory_limit,
            tenant, tenant_concurrency, tenant_rate, sequence,
        )
        return self.commands.decorator(name, options)

    @property
    def commands(self) -> CommandRegistry:
        """The registered commands."""
        return self.registrations.commands

    def submit_many(
        self, works: Iterable[BoundCommand[Any]], /, *, tx: Transaction | None = None
    ) -> list[Job[Any]]:
        """Submit many jobs in one transaction: all of them or none.

        Args:
            works: Submissions made by `Command.bind(...)`.
            tx: Your open transaction on the ledger's database. The jobs exist when you commit it.

        Returns:
            A handle for each job, in the order of `works`.
        """
        return self.commands.submit_many(list(works), tx)

    def spill(self, kind: str, /, *, key: Key | KeyOf | None = None) -> SpillToJob:
        """Return a function for `retry(spill=...)` that enqueues a failed call as a job.

        The job gets the arguments of the call, the attempts so far and the correlation ids. It is
        due when a retry makes sense.

        Args:
            kind: Name of a registered command (the job type) that continues the work.
            key: Job key: a `Key`, a template over the parameters of the function, or a function of
                them. Default: the key of the retry. Without any key, every call that gives up is a
                new job. A job key is used once: if its job has ended, the call is not enqueued, and
                its error gets a note.

        Returns:
            The function to pass as `spill=`.
        """
        return spill.SpillToJob(self.opener.ledger, kind, key)

    def items(self, name: str, /) -> LedgerItems:
        """Return the store that counts the rejections of a batch's items in the ledger.

        Args:
            name: Name of the batch, such as `"tiles"`.

        Returns:
            A store for `batch.retrying(sender, items=...)`.
        """
        return ledger_items.LedgerItems(self.opener.ledger, name)

    # --- Events

    # fmt: off
    @overload
    def on(
        self, *types: str, name: str | None = None, in_transaction: Literal[True],
        retry: RetryLike | None = None, concurrency: int | None = None,
    ) -> Callable[[TxEventHandler], TxEventHandler]: ...
    @overload
    def on(
        self, *types: str, name: str | None = None, in_transaction: Literal[False] = False,
        retry: RetryLike | None = None, concurrency: int | None = None,
        persist: Literal["all", "failures"] = "all",
    ) -> Callable[[EventHandler], EventHandler]: ...
    def on(
        self, *types: str, name: str | None = None, in_transaction: bool = False,
        retry: RetryLike | None = None, concurrency: int | None = None,
        persist: Literal["all", "failures"] = "all",
    ) -> Any:
    # fmt: on
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
            persist: "all" stores each event with a job. "failures" calls the function straight off
                the source. Only failed events are stored, with a job whose first attempt was this
                call. It is faster, but successes are not recorded and cannot be replayed, and an
                event that the broker delivers twice is handled twice.

        Returns:
            A decorator that returns the function unchanged.
        """
        return self.registrations.inbox.handlers.decorator(
            types,
            name=name,
            retry=retry,
            concurrency=concurrency,
            in_transaction=in_transaction,
            persist=persist,
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
        return self.registrations.inbox.receive(event, tx)

    def publish(
        self,
        event: Event[Any],
        /,
        *,
        to: str,
        key: str | None = None,
        tx: Transaction | None = None,
    ) -> bool:
        """Store an event that workers send to a broker, at least once.

        Args:
            event: The event. Its `id` is unique within its `source`, and the broker may use it to
                recognise duplicates.
            to: Name of a destination of this app.
            key: Events with the same key are sent in order. An event that cannot be sent holds
                back later ones with its key, until it is sent, or is a dead letter.
            tx: Your open transaction on the ledger's database. The event is sent after you commit
                it.

        Returns:
            False if this event was published to this destination before. Nothing is changed then.

        Raises:
            ValueError: The app has no such destination.
        """
        return self.ledger.submit(self._job_to_publish(event, to, key), tx=tx).created

    async def apublish(
        self,
        event: Event[Any],
        /,
        *,
        to: str,
        key: str | None = None,
        tx: AsyncTransaction | None = None,
    ) -> bool:
        """Store an event that workers send to a broker, from async code. See `publish`.

        Args:
            event: The event.
            to: Name of a destination of this app.
            key: Events with the same key are sent in order.
            tx: Your open async transaction on the ledger's database.

        Returns:
            False if this event was published to this destination before.
        """
        job = self._job_to_publish(event, to, key)
        return (await self.commands.aio.submit(job, tx=tx)).created

    def _job_to_publish(self, event: Event[Any], to: str, key: str | None) -> NewJob:
        outbox = self.registrations.outbox
        if outbox is None:
            raise ValueError(
                f"destination {to!r} is unknown; add it with App(destinations=[...])"
            )
        return outbox.job(event, to, key)

    async def areceive(self, event: Event[Any], /, *, tx: AsyncTransaction | None = None) -> bool:
        """Store an event and create a job for each of its handlers, from async code.

        Args:
            event: The event. Its `id` is unique within its `source`.
            tx: Your open async transaction on the ledger's database.

        Returns:
            False if the event is a duplicate. Nothing is changed then.
        """
        return await self.registrations.inbox.areceive(event, self.commands.aio, tx)

    # --- Datasets

    def dataset(
        self,
        source: str,
        query: str,
        /,
        *,
        raw: str | Store,
        checks: Sequence[Check],
        customers: Callable[[], Iterable[str]] | Sequence[str],
        cron: str | None = None,
        timezone: str = "UTC",
        retry: RetryLike | None = None,
        max_age: Seconds | None = WEEK,
        concurrency: int | None = None,
        source_concurrency: int | None = None,
        rate: float | None = None,
        source_rate: float | None = None,
        version: str = "1",
    ) -> Callable[[Extract], Dataset]:
        """Register an extraction of data by customer and day, as a decorator.

        Each customer and day is a partition. Each run of a partition writes new raw data, and the
        checks accept or reject it.

        Args:
            source: Name of the source, such as `"crm"`.
            query: Name of the query, such as `"orders"`.
            raw: The store for raw data: a name of `App(stores=...)`, or a `Store`.
            checks: Checks that a run must pass to be accepted.
            customers: Customer ids, or a function that returns them and is called each time.
            cron: When the day before is extracted. Default: only by a backfill, retry or
                reprocessing.
            timezone: Time zone of `cron`.
            retry: Policy of the attempts at a partition. Default: 6 attempts, after 5 min, 30 min,
                then every 2 h. Options that `retry(...)` does not set keep these defaults. A
                `RetryPolicy` replaces them.
            max_age: Age after which a partition is not retried automatically. None: no limit.
            concurrency: Maximum number of extractions of this dataset at the same time, over all
                workers. Default: 10.
            source_concurrency: The same limit for all datasets of the source. Default: no limit.
            rate: Maximum number of extractions of this dataset that start in a second. Default: no
                limit.
            source_rate: The same limit for all datasets of the source. Default: no limit.
            version: Version of the checks. It is stored with each verdict.

        Returns:
            A decorator that turns the function into a `Dataset`.
        """
        return self.datasets.decorator(
            source,
            query,
            raw=raw,
            checks=checks,
            customers=customers,
            cron=cron,
            timezone=timezone,
            retry=retry,
            max_age=max_age,
            concurrency=concurrency,
            source_concurrency=source_concurrency,
            rate=rate,
            source_rate=source_rate,
            version=version,
        )

    @property
    def datasets(self) -> Datasets:
        """The registered datasets."""
        return self.registrations.datasets
