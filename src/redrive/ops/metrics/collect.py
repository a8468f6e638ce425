"""Metrics of a ledger for Prometheus and OpenTelemetry."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...journal import metrics as named
from ...journal.bus import subscribe
from ...journal.metrics import LabelLimiter, Measurement, Metric
from ...ledger import audit
from ...ledger.jobs import workers
from ...ledger.model import PRIORITIES, QUARANTINE
from ...ledger.queries import jobs, overview
from ...ledger.stats import counters
from ...partitions.queries import PartitionQueries
from ..project.target import Operated, ledger_of

if TYPE_CHECKING:
    from datetime import datetime

    from ...journal.sinks.prometheus import PrometheusExporter
    from ...ledger.jobs.workers import WorkerRecord
    from ...ledger.ledger import Ledger

SILENT = timedelta(seconds=60)
"""Time without a heartbeat after which a worker counts as silent."""
CACHE_SECONDS = 1.0
"""Time for which a reading is reused. OpenTelemetry asks for each metric by itself."""


class LedgerGauges:
    """Reads the metrics of a ledger. It never raises: a ledger that is offline is a metric too.

    Threads may share one.
    """

    def __init__(self, app: Operated, /) -> None:
        self._app = app
        self._limiter = LabelLimiter()
        self._lock = threading.Lock()
        self._read: tuple[float, list[Measurement]] = (-CACHE_SECONDS, [])

    def __call__(self) -> list[Measurement]:
        """Return the current measurements."""
        with self._lock:
            read_at, measurements = self._read
            if monotonic() - read_at >= CACHE_SECONDS:
                try:
                    readings = fold_labels(read_gauges(ledger_of(self._app)), self._limiter)
                    measurements = [Measurement(named.UP, 1), *readings]
                except Exception:  # The ledger is offline, which is reported.
                    measurements = [Measurement(named.UP, 0)]
                self._read = (monotonic(), measurements)
            return measurements


def read_gauges(ledger: Ledger, /) -> Iterator[Measurement]:
    """Read the counts of each job type, the workers and the partitions: a few rows for each."""
    now = ledger.now()
    with ledger.reading() as connection:
        parked = overview.parked_reasons(connection)
        for kind, tally in counters.counts(connection).items():
            for state, count in (
                ("waiting", tally.ready),
                ("running", tally.leased),
                ("dead", tally.dead),
            ):
                yield Measurement(named.JOBS, count, (kind, state))
            for metric, count in (
                (named.SUBMITTED, tally.submitted),
                (named.DONE, tally.done + tally.pruned),
                (named.DISCARDED, tally.dropped),
                (named.LATE, tally.late),
                (named.PARKED, int(kind in parked)),
            ):
                yield Measurement(metric, count, (kind,))
            due = (
                jobs.next_due(connection, [kind], (*PRIORITIES, QUARANTINE))
                if tally.ready
                else None
            )
            waited = 0.0 if due is None else max(0.0, (now - due).total_seconds())
            yield Measurement(named.OLDEST, waited, (kind,))
        yield from _workers(workers.active_workers(connection), now)
        yield Measurement(named.AUDIT, audit.head(connection)[0])
    for (source, query), shades in PartitionQueries(ledger).counts().items():
        for shade, count in shades.items():
            yield Measurement(named.PARTITIONS, count, (f"{source}/{query}", shade))


def _workers(present: list[WorkerRecord], now: datetime) -> Iterator[Measurement]:
    alive = sum(now - worker.seen_at <= SILENT for worker in present)
    yield Measurement(named.WORKERS, alive, ("alive",))
    yield Measurement(named.WORKERS, len(present) - alive, ("silent",))


def fold_labels(measurements: Iterator[Measurement], limiter: LabelLimiter, /) -> list[Measurement]:
    """Merge job types beyond the limit: counts are added, of ages and flags the greatest counts."""
    summed: dict[tuple[Metric, tuple[str, ...]], float] = {}
    for metric, value, labels in map(limiter.limit, measurements):
        if metric in (named.OLDEST, named.PARKED):
            summed[metric, labels] = max(summed.get((metric, labels), value), value)
        else:
            summed[metric, labels] = summed.get((metric, labels), 0) + value
    return [Measurement(metric, value, labels) for (metric, labels), value in summed.items()]


def prometheus_endpoint(app: Operated, /) -> PrometheusExporter:
    """Return the metrics of this process and of the ledger, for a `/metrics` route of your own.

    Make it once and call `.text(accept)` for each scrape. It also subscribes
    `journal.prometheus()`, unless that is subscribed already. Threads may share the result.

    Args:
        app: The app, or its ledger.

    Returns:
        An object whose `text(accept)` returns the body and the content type of a scrape.

    Raises:
        ImportError: prometheus-client is not installed. The message names the extra.
    """
    from ...journal.sinks.prometheus import PrometheusExporter, prometheus  # noqa: PLC0415  # the extra may be missing

    sink = prometheus()
    if not sink.is_subscribed:
        subscribe(sink)
    return PrometheusExporter(LedgerGauges(app))


def observe_ledger(app: Operated, /, *, meter_provider: Any = None) -> None:
    """Export the metrics of the ledger through OpenTelemetry, with the names of Prometheus.

    The ledger is read whenever the provider collects, at most once a second. Call it once for an
    app.

    Args:
        app: The app, or its ledger.
        meter_provider: The provider. The default is the program's global one.

    Raises:
        ImportError: opentelemetry-api is not installed. The message names the extra.
    """
    from ...journal.sinks.otel import observe_measurements  # noqa: PLC0415  # the extra may be missing

    observe_measurements(LedgerGauges(app), meter_provider)
