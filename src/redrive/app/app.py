"""App: the root that holds the ledger and what is registered to work from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core.key import Key, KeyOf
from ..core.seconds import Seconds
from ..journal.bus import subscribe
from ..storage.registry import Registry as Stores
from ..storage.registry import to_registry
from .extracting import Extracting
from .idempotent import Idempotent
from .listening import Listening

if TYPE_CHECKING:
    from ..batch.store.ledger import LedgerItems
    from ..core.outage import Parking
    from ..journal.record import Sink
    from ..ledger.jobs.spill import LeaveBehind
    from ..ledger.ledger import Ledger
    from ..messages.source import Source
    from ..worker.job_type import JobType
    from ..worker.tasks import BackgroundTask
    from ..worker.worker import Worker


class App(Listening, Idempotent, Extracting):
    """The root object: holds the ledger, the registered functions and the settings.

    Creating an App opens nothing: no file, no socket, no thread. The ledger is opened at first use.
    An App is a context manager that closes what it opened.

    Threads and event loops may share it. A forked child may keep using it and gets its own
    connections.
    """

    def __init__(
        self, ledger: str | Ledger | None = None, /, *, migrate: bool | None = None, include: Sequence[str] = (),
        stores: Stores | Mapping[str, Any] | None = None, sources: Sequence[Source] = (), secrets: Collection[str] = (),
        parking: Parking | None = None, keep: Seconds | None = None, journal: Sequence[Sink] = (),
    ) -> None:  # fmt: skip
        """Configure the ledger and the workers of this app.

        Args:
            ledger: URL of the ledger, or an open `Ledger`. Default: `REDRIVE_LEDGER`, then
                `redrive.toml`, then `sqlite:///redrive.db`.
            migrate: Create or upgrade the tables at first use. Default: True on SQLite, False on
                Postgres. Where it is False, a missing or old schema is an error that names the
                command to run.
            include: Modules that register functions. They are imported when a worker, the console
                or the CLI starts.
            stores: Storage by name, such as `{"raw": {"type": "local", "options": {"root":
                "raw"}}}`, or a `storage.Registry`.
            sources: Message sources that workers read, such as `[RedisStream("redis://localhost",
                "shop.events", group="shop")]`.
            secrets: Names of fields that must never appear in log records, stored errors or the
                console. They are added to the standard list.
            parking: When workers treat failures as an outage. Default: 10 jobs, 90 % of recent
                ones. Use `Parking.disabled()` to switch it off.
            keep: How long workers keep done jobs and events before they prune them. Default: 30
                days. Use `math.inf` to keep them for ever.
            journal: Sinks for the log records of this process, such as `[journal.prometheus()]`.
                They are unsubscribed when the app is closed.

        Raises:
            TypeError: `include` or `secrets` is a single string, or `ledger` is neither a URL nor a
                ledger.
            ValueError: The URL is not valid.
        """
        super().__init__(ledger, migrate)
        self._unsubscribe = [subscribe(sink) for sink in journal]
        if isinstance(include, str):
            raise TypeError(f"include must be a list of modules, not one text; pass [{include!r}]")
        if isinstance(secrets, str):
            raise TypeError(f"secrets must be a collection of names, not one text; pass [{secrets!r}]")
        if secrets:
            from ..journal.redaction import hide  # noqa: PLC0415

            hide(*secrets)
            self._hidden = tuple(secrets)
        if sources:
            from ..messages.source import check_sources  # noqa: PLC0415

            self._sources = check_sources(sources)
        self._include = tuple(include)
        self._parking, self._keep = parking, keep
        self.stores = to_registry(stores)

    def close(self) -> None:
        """Close the connections that this app opened.

        An app that is used again opens them again. A `Ledger` that was passed in stays open.
        """
        if self._commands is not None:
            self._commands.close()
        super().close()
        self.stores.close()
        while self._unsubscribe:
            self._unsubscribe.pop()()

    @contextmanager
    def on_ledger(self, ledger: Ledger, /) -> Iterator[None]:
        """On this ledger inside the block, and back on its own after it: for tests. Not while others use the app."""
        with self._lock:
            before, self._ledger, self._keys = (self._ledger, self._keys), ledger, None
        try:
            yield
        finally:
            with self._lock:
                made, (self._ledger, self._keys) = self._keys, before
            if made is not None:
                made.close()
            if self._commands is not None:
                self._commands.close()

    # ---- work ----

    def load(self) -> None:
        """Import the modules of `include`, with their registrations."""
        for module in self._include:
            import_module(module)

    def kinds(self, only: Collection[str] | None = None, /) -> list[JobType]:
        """What its workers know: every kind of job that is registered, or only these. ValueError names one that is not.

        Datasets are no kinds of jobs; `only` may name them too.
        """
        self.load()
        datasets = () if self._datasets is None else tuple(one.name for one in self._datasets)
        if self._inbox is None and not self._sources:
            return self.commands.chosen(only, beside=datasets)
        inbox = self.inbox
        others = [*inbox.kinds, *(kind for source in self._sources for kind in source.kinds(inbox))]
        return self.commands.chosen(only, others, beside=datasets)

    def chores(self, kinds: Sequence[JobType], /) -> list[BackgroundTask]:
        """What its workers do beside jobs: schedules of these kinds, sources, and what operators have begun."""
        from ..commands.schedule import Schedule  # noqa: PLC0415  # brings SQLAlchemy
        from ..settings import settings  # noqa: PLC0415
        from ..worker.maintenance import KEEP_FOREVER  # noqa: PLC0415
        from ..worker.tasks import AuditAnchorTask, SweepTask  # noqa: PLC0415
        from ..worker.worker import retention_seconds  # noqa: PLC0415

        anchors = AuditAnchorTask(self.ledger, settings().worker.anchors)
        found: list[BackgroundTask] = [*Schedule.of(self.ledger, self.commands.scheduled, kinds), SweepTask(self.ledger), anchors]
        names = {kind.name for kind in kinds}
        for source in self._sources:
            if {kind.name for kind in source.kinds(self.inbox)} <= names:  # `only=` may have left it out
                found += source.chores(self.inbox)
        if self._inbox is not None and retention_seconds(self._keep) != KEEP_FOREVER:
            from ..messages.retention import EventRetention  # noqa: PLC0415

            found.append(EventRetention(self._inbox, retention_seconds(self._keep)))
        return found

    def worker(
        self, *, threads: int = 8, only: Collection[str] | None = None, drain: Seconds = 30, name: str | None = None
    ) -> Worker:
        """Return a worker that runs in the background while its block is open.

        Use it as `with app.worker():`. `redrive work module:app` runs a worker as a process.

        Args:
            threads: Maximum number of sync functions that run at the same time.
            only: Names of the job types and datasets to run. Default: all that are registered.
            drain: Seconds that running jobs get at the end of the block. A job that has not ended
                by then is returned to the queue. That does not count as an attempt.
            name: Name of the worker in the console and the CLI. Default: host name and process id.

        Returns:
            The worker, not started yet.

        Raises:
            ValueError: `only` names a job type that is not registered.
        """
        from ..worker.worker import Worker  # noqa: PLC0415  # brings SQLAlchemy

        kinds = self.kinds(only)
        return Worker(
            self.ledger,
            kinds,
            threads=threads,
            drain=drain,
            work_sources=self.partition_runners(only, threads),
            background_tasks=[*self.chores(kinds), *self.partition_tasks(only)],
            name=name,
            parking=self._parking,
            keep=self._keep,
        )

    def work(
        self, *, threads: int = 8, only: Collection[str] | None = None, drain: Seconds = 30, name: str | None = None
    ) -> None:
        """Run a worker until SIGTERM or SIGINT, then drain it.

        A second signal stops it at once. `redrive work module:app` does the same.

        Args:
            threads: Maximum number of sync functions that run at the same time.
            only: Names of the job types and datasets to run. Default: all that are registered.
            drain: Seconds that running jobs get after the signal. A job that has not ended by then
                is returned to the queue. That does not count as an attempt.
            name: Name of the worker in the console and the CLI. Default: host name and process id.
        """
        from ..worker.worker import run_until_signal  # noqa: PLC0415  # brings SQLAlchemy

        run_until_signal(self.worker(threads=threads, only=only, drain=drain, name=name))

    # ---- calls ----

    def spill(self, kind: str, /, *, key: Key | KeyOf | None = None) -> LeaveBehind:
        """Return a function for `retry(spill=...)` that enqueues a failed call as a job.

        The job gets the arguments of the call, the attempts so far and the correlation ids. It is
        due when a retry makes sense.

        Args:
            kind: Name of a registered command (the job type) that continues the work.
            key: Job key: a `Key`, a template over the parameters of the function, or a function of
                them. Default: the key of the retry. Without any key, every call that gives up is a
                new job.

        Returns:
            The function to pass as `spill=`.
        """
        from ..ledger.jobs.spill import LeaveBehind  # noqa: PLC0415

        return LeaveBehind(lambda: self.ledger, kind, key)

    def items(self, name: str, /) -> LedgerItems:
        """Return the store that counts the rejections of a batch's items in the ledger.

        Args:
            name: Name of the batch, such as `"tiles"`.

        Returns:
            A store for `batch.retrying(sender, items=...)`.
        """
        from ..batch.store.ledger import LedgerItems  # noqa: PLC0415

        return LedgerItems(lambda: self.ledger, name)
