"""Metrics: how the ledger stands, as numbers for Prometheus and OpenTelemetry; and the text of a scrape."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...journal import metrics as named
from ...journal.metrics import LabelLimiter, Measurement, Metric
from ..target.target import Operated, ledger_of

if TYPE_CHECKING:
    from datetime import datetime

    from ...journal.sinks.prometheus import PrometheusExporter
    from ...ledger.jobs.workers import Worker
    from ...ledger.ledger import Ledger

SILENT = timedelta(seconds=60)
"""A worker that was not seen for so long is counted as silent."""
FRESH = 1.0
"""Seconds for which one reading answers several questions: OpenTelemetry asks for each metric by itself."""


class Standing:
    """How a ledger stands, read when somebody asks. Never raises: a ledger that is away is a number too. Threads may share it."""

    def __init__(self, app: Operated, /) -> None:
        self._app = app
        self._bounded = LabelLimiter()
        self._lock = threading.Lock()
        self._read: tuple[float, list[Measurement]] = (-FRESH, [])

    def __call__(self) -> list[Measurement]:
        """All that is known now."""
        with self._lock:
            at, found = self._read
            if monotonic() - at >= FRESH:
                try:
                    found = [Measurement(named.UP, 1), *folded(readings(ledger_of(self._app)), self._bounded)]
                except Exception:  # the database is away: that is what is told
                    found = [Measurement(named.UP, 0)]
                self._read = (monotonic(), found)
            return found


def readings(ledger: Ledger, /) -> Iterator[Measurement]:
    """What the counts say, kind by kind, and who works. Reads a few rows for each kind, however many jobs there are."""
    from ...ledger import audit  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ...ledger.jobs import workers  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ...ledger.model import PRIORITIES, QUARANTINE  # noqa: PLC0415  # likewise
    from ...ledger.queries import jobs, overview  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ...ledger.stats import counters  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ...partitions.queries import Register  # noqa: PLC0415  # likewise

    now = ledger.now()
    with ledger.reading() as connection:
        parked = overview.parked_reasons(connection)
        for kind, tally in counters.counts(connection).items():
            for state, many in (("waiting", tally.ready), ("running", tally.leased), ("dead", tally.dead)):
                yield Measurement(named.JOBS, many, (kind, state))
            for metric, many in (
                (named.SUBMITTED, tally.submitted),
                (named.DONE, tally.done + tally.pruned),
                (named.DISCARDED, tally.dropped),
                (named.LATE, tally.late),
                (named.PARKED, int(kind in parked)),
            ):
                yield Measurement(metric, many, (kind,))
            due = jobs.next_due(connection, [kind], (*PRIORITIES, QUARANTINE)) if tally.ready else None
            waited = 0.0 if due is None else max(0.0, (now - due).total_seconds())
            yield Measurement(named.OLDEST, waited, (kind,))
        yield from _workers(workers.active_workers(connection), now)
        yield Measurement(named.AUDIT, audit.head(connection)[0])
    for (source, query), shades in Register(ledger).counts().items():
        for shade, many in shades.items():
            yield Measurement(named.PARTITIONS, many, (f"{source}/{query}", shade))


def _workers(present: list[Worker], now: datetime) -> Iterator[Measurement]:
    alive = sum(now - one.seen_at <= SILENT for one in present)
    yield Measurement(named.WORKERS, alive, ("alive",))
    yield Measurement(named.WORKERS, len(present) - alive, ("silent",))


def folded(found: Iterator[Measurement], bounded: LabelLimiter, /) -> list[Measurement]:
    """Kinds beyond the bound as one: counts added up, ages and flags by the greatest."""
    summed: dict[tuple[Metric, tuple[str, ...]], float] = {}
    for metric, value, labels in map(bounded.limit, found):
        before = summed.get((metric, labels))
        together = value if before is None else max(before, value) if metric in (named.OLDEST, named.PARKED) else before + value
        summed[metric, labels] = together
    return [Measurement(metric, value, labels) for (metric, labels), value in summed.items()]


def prometheus_endpoint(app: Operated, /) -> PrometheusExporter:
    """Return the metrics of this process and of the ledger, for a `/metrics` route of your own.

    Make it once and call `.text(accept)` for each scrape. It also subscribes `journal.prometheus()`, unless that is
    subscribed already. Threads may share the result.

    Args:
        app: The app, or its ledger.

    Returns:
        An object whose `text(accept)` returns the body and the content type of a scrape.

    Raises:
        ImportError: prometheus-client is not installed. The message names the extra.
    """
    from ...journal.bus import subscribe  # noqa: PLC0415
    from ...journal.sinks.prometheus import PrometheusExporter, prometheus  # noqa: PLC0415  # the extra may be missing

    sink = prometheus()
    if not sink.is_subscribed:
        subscribe(sink)
    return PrometheusExporter(Standing(app))


def observe_ledger(app: Operated, /, *, meter_provider: Any = None) -> None:
    """Export the metrics of the ledger through OpenTelemetry, under the same names as for Prometheus.

    The ledger is read whenever the provider collects, at most once a second. Call it once for an app.

    Args:
        app: The app, or its ledger.
        meter_provider: The provider. The default is the program's global one.

    Raises:
        ImportError: opentelemetry-api is not installed. The message names the extra.
    """
    from ...journal.sinks.otel import observe_measurements  # noqa: PLC0415  # the extra may be missing

    observe_measurements(Standing(app), meter_provider)
