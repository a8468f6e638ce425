"""Spans and metrics of a test, with the real SDK of OpenTelemetry and its exporters in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redrive import journal
from redrive.core.context import CARRIERS
from redrive.journal.bus import ATTEMPT_WRAPPERS, HANDLER_WRAPPERS


class Traced:
    """A tracer and a meter for one test."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        assert journal.flush()
        return [span for span in self.exporter.get_finished_spans() if name in (None, span.name)]

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@contextmanager
def record_spans() -> Iterator[Traced]:
    """Subscribe the sink of OpenTelemetry in the block."""
    made = Traced()
    unsubscribe = journal.subscribe(journal.otel(tracer_provider=made.provider, meter_provider=made.meters))
    try:
        yield made
    finally:
        unsubscribe()
        made.meters.shutdown()
    assert not CARRIERS
    assert not ATTEMPT_WRAPPERS
    assert not HANDLER_WRAPPERS


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span, without those that are Redrive's own."""
    return {name: value for name, value in (span.attributes or {}).items() if not name.startswith("redrive.")}
