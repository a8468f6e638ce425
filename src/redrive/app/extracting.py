"""Extracting: an app's datasets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from ..core.seconds import Seconds
from ..storage.registry import Registry as Stores
from .ledgered import Ledgered

if TYPE_CHECKING:
    from ..core.outage import Parking
    from ..engine.retry import RetryLike
    from ..partitions.datasets.definition import Extract
    from ..partitions.datasets.registry import Dataset, Datasets
    from ..partitions.model import Check
    from ..storage.store import Store
    from ..worker.tasks import BackgroundTask
    from ..worker.work_source import WorkSource

WEEK = timedelta(days=7)


class Extracting(Ledgered):
    """What an app has of partitions. A facet of App, which says who may share it."""

    _datasets: Datasets | None = None
    _parking: Parking | None
    stores: Stores

    def dataset(
        self, source: str, query: str, /, *, raw: str | Store, checks: Sequence[Check],
        customers: Callable[[], Iterable[str]] | Sequence[str], cron: str | None = None, timezone: str = "UTC",
        retry: RetryLike | None = None, max_age: Seconds | None = WEEK, concurrency: int | None = None,
        source_concurrency: int | None = None, rate: float | None = None, source_rate: float | None = None, version: str = "1",
    ) -> Callable[[Extract], Dataset]:  # fmt: skip
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
            source, query, raw=raw, checks=checks, customers=customers, cron=cron, timezone=timezone, retry=retry,
            max_age=max_age, concurrency=concurrency, source_concurrency=source_concurrency, rate=rate,
            source_rate=source_rate, version=version,
        )  # fmt: skip

    @property
    def datasets(self) -> Datasets:
        """What was registered as datasets."""
        found = self._datasets
        if found is not None:
            return found
        from ..partitions.datasets.registry import Datasets  # noqa: PLC0415  # brings SQLAlchemy

        with self._lock:
            if self._datasets is None:
                self._datasets = Datasets(lambda: self.ledger, lambda: self.stores)
            return self._datasets

    def partition_tasks(self, only: Collection[str] | None, /) -> list[BackgroundTask]:
        """Return the background tasks of datasets: schedules, and the rounds of the control plane."""
        chosen = [] if self._datasets is None else self._datasets.chosen(only)
        if not chosen:
            return []
        from ..partitions.work.tasks import Firing, Tending  # noqa: PLC0415

        scheduled: list[BackgroundTask] = []
        if any(extraction.cron is not None for extraction in chosen):
            scheduled.append(Firing(self.ledger, chosen))
        return [Tending(self.ledger, chosen), *scheduled]

    def partition_runners(self, only: Collection[str] | None, threads: int, /) -> list[WorkSource]:
        """Return the work source that extracts partitions, if there are datasets."""
        chosen = [] if self._datasets is None else self._datasets.chosen(only)
        if not chosen:
            return []
        from ..partitions.work.runner import PartitionRunner  # noqa: PLC0415

        return [PartitionRunner(chosen, max_running=threads, parking=self._parking)]
