"""Extracting: an app's datasets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from ..core.seconds import Seconds
from ..storage.registry import Registry as Stores
from .ledgered import Ledgered

if TYPE_CHECKING:
    from ..engine.retry import RetryLike
    from ..partitions.dataset import Dataset
    from ..partitions.datasets import Datasets
    from ..partitions.extraction import Extract
    from ..partitions.finding import Check
    from ..storage.store import Store
    from ..worker.chore import Chore
    from ..worker.parking import Parking

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
        """Register an extraction: one partition for each customer and day, judged by the checks; see `redrive.partitions`.

        raw: the store in which runs are written: one of App(stores=...), or a Store. checks: all of them must be well for a run
        to be accepted. customers: whose data there is: ids, or a function that is asked each time.
        cron: when the day before is extracted, in `timezone` (default: only when somebody asks: a backfill, a retry).
        retry: attempts at a partition (default: 6, after 5 min, 30 min, then every 2 h). max_age: a partition is not tried longer
        than this after its day, unless somebody asks; None: for ever.
        concurrency: extractions of this dataset at once, over all workers (default: 10); source_concurrency: of all datasets of
        its source (default: no limit). rate, source_rate: how many start in a second, likewise (default: no limit).
        version: of the checks; verdicts carry it.
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
        from ..partitions.datasets import Datasets  # noqa: PLC0415  # brings SQLAlchemy

        with self._lock:
            if self._datasets is None:
                self._datasets = Datasets(lambda: self.ledger, lambda: self.stores)
            return self._datasets

    def extractions(self, only: Collection[str] | None, threads: int, name: str | None, /) -> list[Chore]:
        """What its workers do for datasets: the control plane's rounds, schedules, and the extractions themselves."""
        chosen = [] if self._datasets is None else self._datasets.chosen(only)
        if not chosen:
            return []
        from ..partitions.firing import Firing  # noqa: PLC0415
        from ..partitions.runner import Runner  # noqa: PLC0415
        from ..partitions.tending import Tending  # noqa: PLC0415

        ledger = self.ledger
        scheduled: list[Chore] = [Firing(ledger, chosen)] if any(one.cron is not None for one in chosen) else []
        runner = Runner(ledger, chosen, places=threads, name=name, parking=self._parking)
        return [Tending(ledger, chosen), *scheduled, runner]
