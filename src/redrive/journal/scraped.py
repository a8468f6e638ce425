"""The Prometheus sink: counts for a scrape, and the text of one. Extra: `prometheus`."""

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
    raise ImportError('metrics for Prometheus need prometheus-client: pip install "redrive[prometheus]"') from missing

from .bus import LOSSES
from .metrics import BUCKETS, DROPPED, HEARD, Bounded, Measure, Metric, measured
from .record import Record

_SINKS: WeakKeyDictionary[CollectorRegistry, Scraped]


class Scraped:
    """Counts records into a registry of prometheus_client, within bounded labels. Threads may share it; one for a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.every = True
        self._bounded = Bounded()
        self._lock = threading.Lock()
        self._subscribed = False
        self._made: dict[str, Any] = {metric.name: _made(metric, registry) for metric in HEARD}
        registry.register(_Dropped())

    def __call__(self, record: Record, /) -> None:
        for one in measured(record):
            with self._lock:
                metric, value, labels = self._bounded.measure(one)
            child = self._made[metric.name].labels(*labels)
            if metric.kind == "histogram":
                child.observe(value)
            else:
                child.inc(value)

    @property
    def subscribed(self) -> bool:
        """Whether it hears records now."""
        return self._subscribed

    def attached(self) -> Callable[[], None]:
        """Asked when it is subscribed: once only, since everything would be counted twice."""
        if self._subscribed:
            raise ValueError("the Prometheus sink of this registry is already subscribed, so everything would be counted twice")
        self._subscribed = True

        def detach() -> None:
            self._subscribed = False

        return detach


class _Dropped:
    """What the journal has lost in this process."""

    def collect(self) -> Iterator[Family]:
        yield CounterMetricFamily(DROPPED.name, DROPPED.help, value=LOSSES.count)


class Exposition(NamedTuple):
    """The answer to a scrape."""

    body: bytes
    content_type: str


class Exposed:
    """A registry together with what is read when somebody asks. Threads may share it."""

    def __init__(self, read: Callable[[], Iterable[Measure]], registry: CollectorRegistry | None = None) -> None:
        self._read = read
        self._registry = REGISTRY if registry is None else registry

    def collect(self) -> Iterator[Family]:
        """All families: of the registry first."""
        yield from self._registry.collect()
        families: dict[str, Any] = {}
        for metric, value, labels in self._read():
            if metric.name not in families:
                family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                families[metric.name] = family(metric.name, metric.help, labels=metric.labels)
            families[metric.name].add_metric(labels, value)
        yield from families.values()

    def text(self, accept: str | None = None, /) -> Exposition:
        """As the scraper wants it, by its Accept header."""
        encode, content_type = choose_encoder(accept or "")
        return Exposition(encode(self), content_type)


def _made(metric: Metric, registry: CollectorRegistry) -> Counter | Histogram:
    if metric.kind == "histogram":
        return Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=BUCKETS)
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


_SINKS = WeakKeyDictionary()
_LOCK = threading.Lock()


def prometheus(registry: CollectorRegistry | None = None, /) -> Scraped:
    """Return a sink for Prometheus: `journal.subscribe(journal.prometheus())`.

    Each registry has one sink. Extra: `prometheus`.

    Args:
        registry: Default: the registry of prometheus_client.

    Returns:
        The sink.
    """
    wanted = REGISTRY if registry is None else registry
    with _LOCK:
        found = _SINKS.get(wanted)
        if found is None:
            found = _SINKS[wanted] = Scraped(wanted)
        return found
