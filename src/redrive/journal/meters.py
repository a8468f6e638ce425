"""Meters: the metrics by OpenTelemetry, under the names that Prometheus has. Extra: `otel`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from opentelemetry import metrics as library
from opentelemetry.metrics import CallbackOptions, Observation

from .bus import LOSSES
from .metrics import BUCKETS, DROPPED, HEARD, STANDING, Bounded, Measure, Metric, measured
from .record import Record

SCOPE = "redrive"


class Meters:
    """Counts records by instruments of OpenTelemetry, within bounded labels. Threads may share it."""

    def __init__(self, provider: library.MeterProvider | None) -> None:
        meter = library.get_meter(SCOPE, meter_provider=provider)
        self._bounded = Bounded()
        self._lock = threading.Lock()
        self._made: dict[str, Any] = {metric.name: _made(meter, metric) for metric in HEARD}
        meter.create_observable_counter(DROPPED.name, [_dropped], description=DROPPED.help)

    def count(self, record: Record, /) -> None:
        """What the record counts as."""
        for one in measured(record):
            with self._lock:
                metric, value, labels = self._bounded.measure(one)
            named = dict(zip(metric.labels, labels, strict=True))
            instrument = self._made[metric.name]
            (instrument.record if metric.kind == "histogram" else instrument.add)(value, named)


def observed(read: Callable[[], Iterable[Measure]], provider: library.MeterProvider | None = None, /) -> None:
    """Read these whenever OpenTelemetry collects. For as long as the provider lives."""
    meter = library.get_meter(SCOPE, meter_provider=provider)
    for metric in STANDING:

        def callback(_: CallbackOptions, metric: Metric = metric) -> Iterator[Observation]:
            for one in read():
                if one.metric == metric:
                    yield Observation(one.value, dict(zip(metric.labels, one.labels, strict=True)))

        if metric.kind == "counter":
            meter.create_observable_counter(metric.name, [callback], description=metric.help)
        else:
            meter.create_observable_gauge(metric.name, [callback], description=metric.help, unit=_unit(metric))


def _made(meter: library.Meter, metric: Metric) -> Any:
    if metric.kind == "histogram":
        return meter.create_histogram(
            metric.name, unit=_unit(metric), description=metric.help, explicit_bucket_boundaries_advisory=list(BUCKETS)
        )
    return meter.create_counter(metric.name, description=metric.help)


def _unit(metric: Metric) -> str:
    return "s" if metric.name.endswith("_seconds") else ""


def _dropped(_: CallbackOptions) -> Iterator[Observation]:
    yield Observation(LOSSES.count)
