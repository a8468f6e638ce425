"""Metrics of a ledger for Prometheus and OpenTelemetry, and the HTTP server that shows them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..journal import metrics as named
from ..journal.bus import subscribe
from ..journal.metrics import LabelLimiter, Measurement, Metric
from ..ledger import audit
from ..ledger.jobs import workers
from ..ledger.jobs.pauses import read_pauses
from ..ledger.model import PRIORITIES, QUARANTINE
from ..ledger.queries import jobs, overview
from ..ledger.stats import counters
from ..partitions.queries import PartitionQueries
from .project.target import Operated, ledger_of
from .project.user_code import Unreadable

if TYPE_CHECKING:
    from datetime import datetime

    from ..journal.sinks.prometheus import PrometheusExporter
    from ..ledger.jobs.workers import WorkerRecord
    from ..ledger.ledger import Ledger

HOST = "127.0.0.1"
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
        pauses = read_pauses(connection, now)
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
                (named.CANCELLED, tally.cancelled),
                (named.LATE, tally.late),
                (named.PARKED, int(kind in parked)),
                (named.PAUSED, int(pauses.get("job type", kind) is not None)),
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
        if metric in (named.OLDEST, named.PARKED, named.PAUSED):
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
    from ..journal.sinks.prometheus import PrometheusExporter, prometheus  # noqa: PLC0415  # the extra may be missing

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
    from ..journal.sinks.otel import observe_measurements  # noqa: PLC0415  # the extra may be missing

    observe_measurements(LedgerGauges(app), meter_provider)


class MetricsServer:
    """Serves `/metrics` for a scraper and `/health` for a probe, in its own threads.

    Start it by `with`. Port 0 takes any free port. It shows counts, and never payloads or errors.
    """

    def __init__(
        self,
        exporter: PrometheusExporter,
        is_healthy: Callable[[], bool],
        /,
        *,
        host: str = HOST,
        port: int = 0,
    ) -> None:
        self._exporter, self._is_healthy = exporter, is_healthy
        handler = type("Handler", (_Handler,), {"server_": self})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as problem:
            raise Unreadable(
                f"metrics cannot be served at {host}:{port}: {problem.strerror or problem}"
            ) from problem
        self._server.daemon_threads = True
        self.address = f"{host}:{self._server.server_address[1]}"

    def respond(self, path: str, accept: str | None, /) -> tuple[int, bytes, str]:
        """Return status, body and content type."""
        if path == "/metrics":
            return (200, *self._exporter.text(accept))
        if path == "/health":
            is_healthy = self._is_healthy()
            body = json.dumps({"status": "ok" if is_healthy else "trouble"}).encode()
            return (200 if is_healthy else 503, body, "application/json")
        return (404, b"there is /metrics and /health\n", "text/plain; charset=utf-8")

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="redrive-metrics", daemon=True
        ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_: MetricsServer
    timeout = 10

    def do_GET(self) -> None:
        status, body, kind = self.server_.respond(
            self.path.partition("?")[0], self.headers.get("Accept")
        )
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name in the base class
        """Log nothing: a scrape comes every few seconds."""
