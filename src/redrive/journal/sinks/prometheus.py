"""The Prometheus sink, and the response to a scrape. Extra: `prometheus`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.metrics_core import Metric as Family
except ModuleNotFoundError as missing:
    raise ImportError(
        'metrics for Prometheus need prometheus-client: pip install "redrive[prometheus]"'
    ) from missing

from ..bus import DROPS
from ..metrics import (
    BUCKET_SECONDS,
    DROPPED,
    RECORD_METRICS,
    LabelLimiter,
    Measurement,
    Metric,
    measure,
)
from ..record import Record


class PrometheusSink:
    """Counts records in a registry of prometheus_client, one for each. Threads may share it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.every = True
        self._labels = LabelLimiter()
        self._lock = threading.Lock()
        self._subscribed = False
        self._collectors: dict[str, Any] = {
            metric.name: _create_collector(metric, registry) for metric in RECORD_METRICS
        }
        registry.register(_DropCollector())

    def __call__(self, record: Record, /) -> None:
        for measurement in measure(record):
            with self._lock:
                metric, value, labels = self._labels.limit(measurement)
            child = self._collectors[metric.name].labels(*labels)
            if metric.kind == "histogram":
                child.observe(value)
            else:
                child.inc(value)

    @property
    def is_subscribed(self) -> bool:
        """Whether it is subscribed now."""
        return self._subscribed

    def attached(self) -> Callable[[], None]:
        """Note that the sink is subscribed. A second subscription would count everything twice."""
        if self._subscribed:
            raise ValueError(
                "the Prometheus sink of this registry is already subscribed, "
                "so everything would be counted twice"
            )
        self._subscribed = True

        def detach() -> None:
            self._subscribed = False

        return detach


class _DropCollector:
    """Collects the number of records that this process lost."""

    def collect(self) -> Iterator[Family]:
        yield CounterMetricFamily(DROPPED.name, DROPPED.help, value=DROPS.count)


class Exposition(NamedTuple):
    """The response to a scrape."""

    body: bytes
    content_type: str


class PrometheusExporter:
    """A registry together with metrics that are read at each scrape. Threads may share it."""

    def __init__(
        self, read: Callable[[], Iterable[Measurement]], registry: CollectorRegistry | None = None
    ) -> None:
        self._read = read
        self._registry = REGISTRY if registry is None else registry

    def collect(self) -> Iterator[Family]:
        """Yield all metrics, those of the registry first."""
        yield from self._registry.collect()
        families: dict[str, Any] = {}
        for metric, value, labels in self._read():
            if metric.name not in families:
                family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                families[metric.name] = family(metric.name, metric.help, labels=metric.labels)
            families[metric.name].add_metric(labels, value)
        yield from families.values()

    def text(self, accept: str | None = None, /) -> Exposition:
        """Return the metrics in the format that the scraper's Accept header asks for."""
        encode, content_type = choose_encoder(accept or "")
        return Exposition(encode(self), content_type)


def _create_collector(metric: Metric, registry: CollectorRegistry) -> Counter | Histogram:
    if metric.kind == "histogram":
        return Histogram(
            metric.name, metric.help, metric.labels, registry=registry, buckets=BUCKET_SECONDS
        )
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


_SINKS: WeakKeyDictionary[CollectorRegistry, PrometheusSink] = WeakKeyDictionary()
_LOCK = threading.Lock()


def prometheus(registry: CollectorRegistry | None = None, /) -> PrometheusSink:
    """Return a sink for Prometheus: `journal.subscribe(journal.prometheus())`.

    Each registry has one sink. Extra: `prometheus`.

    Args:
        registry: Default: the registry of prometheus_client.

    Returns:
        The sink.
    """
    registry = REGISTRY if registry is None else registry
    with _LOCK:
        sink = _SINKS.get(registry)
        if sink is None:
            sink = _SINKS[registry] = PrometheusSink(registry)
        return sink
