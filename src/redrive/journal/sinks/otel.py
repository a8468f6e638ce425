"""The OpenTelemetry sink: a span for each attempt, and metrics. Extra: `otel`.

An attempt of a call becomes a span when its record arrives, under the span that was open around
the call. An attempt of a job has a span while it runs, so that its calls and submissions are
children of it. That span ends when the ledger has recorded the outcome. It is linked to the span
in which the job was submitted, or the message sent. Exporters are the program's own.

Attributes have the names of OpenTelemetry's conventions for HTTP and messaging where there is one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import time_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import urlsplit

try:
    from opentelemetry import metrics as otel_metrics
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
    )
except ModuleNotFoundError as missing:
    raise ImportError(
        'journal.otel() needs OpenTelemetry: pip install "redrive[otel]"'
    ) from missing

from ...core.context import CARRIERS, IDS
from ...core.text import safe_str
from ...errors import Again, Blocked, Suspended
from ..bus import ATTEMPT_WRAPPERS, DROPS, HANDLER_WRAPPERS
from ..metrics import (
    ATTEMPT_END_KINDS,
    BUCKET_SECONDS,
    DROPPED,
    LEDGER_METRICS,
    RECORD_METRICS,
    LabelLimiter,
    Measurement,
    Metric,
    measure,
)
from ..record import Record
from ..redaction.redactor import redact, redact_text

if TYPE_CHECKING:
    from ..bus import Describe

Attributes: TypeAlias = Mapping[str, str]
"""Attributes of a span by name."""
SCOPE = "redrive"
TRACEPARENT = "traceparent"
ATTRIBUTE_NAMES = {
    "error_class": "error.type",
    "http_method": "http.request.method",
    "http_status": "http.response.status_code",
    "url": "url.full",
}
"""Fields with a name in OpenTelemetry's conventions. All others are `redrive.*`."""
OMITTED_FIELDS = frozenset((TRACEPARENT, "trace_id", "error", "operation"))
"""Fields that are not attributes, because they are the span's context, status and name."""
HTTP_METHODS = frozenset("CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE".split())
"""Methods that the conventions know. Another one is `_OTHER`, so that there are few values."""
DEFAULT_PORTS = {"http": 80, "https": 443}
JOB_SYSTEM = "redrive"
"""`messaging.system` of jobs and of events that the program itself stored."""
MAX_PENDING_ATTEMPTS = 10_000
"""Attempts of jobs that have ended, and whose record has not arrived yet."""
MAX_SPANS_PER_ATTEMPT = 16
"""Pending spans with the same attempt number: of a job that asks again not to be counted."""


class JobAttempt(Protocol):
    """The lease of a job, as far as spans need it."""

    job_id: int
    attempt: int
    key: str
    ids: Mapping[str, str]
    """Correlation ids from where the job was submitted."""


class PendingSpan(NamedTuple):
    """The span of a job's attempt that has ended, without its outcome."""

    span: Span
    ended_ns: int
    error: tuple[str, str] | None
    """Type and text. The exception itself would keep its frames alive."""


class OtelSink:
    """Creates spans and metrics with the program's providers. Threads may share it."""

    every = True

    def __init__(self, tracer_provider: trace.TracerProvider | None, meter_provider: Any) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._metrics = _RecordMetrics(meter_provider)
        self._pending: OrderedDict[tuple[str, int], list[PendingSpan]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, record: Record, /) -> None:
        self._metrics.add(record)
        fields = record.fields
        if record.kind in ATTEMPT_END_KINDS and fields.get("attempt") and "item" not in fields:
            if "job_id" in fields:
                self._finish_job_span(record)
            else:
                self._create_call_span(record)

    def attached(self) -> Callable[[], None]:
        """Carry the current span in correlation ids, and wrap the attempts of new workers."""
        CARRIERS.append(add_traceparent)
        ATTEMPT_WRAPPERS.append(self.wrap_attempts)
        HANDLER_WRAPPERS.append(self.wrap_handler)

        def detach() -> None:
            CARRIERS.remove(add_traceparent)
            ATTEMPT_WRAPPERS.remove(self.wrap_attempts)
            HANDLER_WRAPPERS.remove(self.wrap_handler)
            self._end_pending_spans()

        return detach

    def _create_call_span(self, record: Record) -> None:
        fields = record.fields
        end = round(record.at.timestamp() * 1e9)
        context = Context()
        parent = parse_traceparent(fields.get(TRACEPARENT))
        if parent is not None:
            context = trace.set_span_in_context(NonRecordingSpan(parent), context)
        span = self._tracer.start_span(
            fields.get("operation") or "call",
            context=context,
            kind=SpanKind.CLIENT if "http_method" in fields else SpanKind.INTERNAL,
            attributes={"redrive.outcome": record.kind, **call_attributes(fields)},
            start_time=end - round((fields.get("latency_ms") or 0.0) * 1e6),
        )
        if "error" in fields:
            _record_error(span, fields.get("error_class"), fields["error"], end)
        span.end(end)

    def _finish_job_span(self, record: Record) -> None:
        attempt = record.fields["job_id"], record.fields["attempt"]
        with self._lock:
            spans = self._pending.get(attempt)
            if spans is None:
                return
            # The oldest: an attempt that does not count has the number of the next one.
            pending = spans.pop(0)
            if not spans:
                del self._pending[attempt]
        attributes = {"redrive.outcome": record.kind, **span_attributes(record.fields)}
        pending.span.set_attributes(attributes)
        _end(pending)

    def wrap_attempts(
        self,
        operation: str,
        execution: str,
        run: Callable[..., Any],
        describe: Describe | None = None,
        /,
    ) -> Callable[..., Any]:
        """Return a job's function that runs inside a span.

        Args:
            operation: The job type.
            execution: `thread`, `async` or `transaction`.
            run: The function.
            describe: Returns the attributes of a message. None: the job is not a message.
        """
        if execution == "async":

            async def run_async(lease: JobAttempt) -> Any:
                with self._job_span(operation, lease, describe):
                    return await run(lease)

            return run_async

        def run_sync(*arguments: Any) -> Any:
            # The lease is the last argument. A transaction passes its connection first.
            with self._job_span(operation, arguments[-1], describe):
                return run(*arguments)

        return run_sync

    def wrap_handler(
        self, operation: str, is_async: bool, run: Callable[..., Any], of_source: Attributes, /
    ) -> Callable[..., Any]:
        """Return a handler that runs inside a span, without a job.

        Args:
            operation: Name of the handler.
            is_async: Whether it is a coroutine function.
            run: The function.
            of_source: Attributes of the source.
        """
        if is_async:

            async def run_async(event: Any) -> Any:
                with self._handler_span(operation, of_source):
                    return await run(event)

            return run_async

        def run_sync(event: Any) -> Any:
            with self._handler_span(operation, of_source):
                return run(event)

        return run_sync

    @contextmanager
    def _handler_span(self, operation: str, of_source: Attributes) -> Iterator[None]:
        try:
            ids = IDS.get()
            attributes = {**of_source, "messaging.message.id": ids.get("event_id", "")}
            span = self._start_span(operation, ids, attributes, {})
        except Exception:  # A tracer that raises must not stop the work.
            DROPS.increment()
            yield
            return
        outcome, failure = "success", None
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            outcome, failure = "retry", (type(error).__name__, safe_str(error))
            raise
        finally:
            span.set_attribute("redrive.outcome", outcome)
            _end(PendingSpan(span, time_ns(), failure))

    @contextmanager
    def _job_span(
        self, operation: str, lease: JobAttempt, describe: Describe | None
    ) -> Iterator[None]:
        try:
            span = self._start_job_span(operation, lease, describe)
        except Exception:  # A tracer that raises must not stop the work.
            DROPS.increment()
            yield
            return
        failure: tuple[str, str] | None = None
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            if not isinstance(error, (Again, Blocked, Suspended)):
                failure = type(error).__name__, safe_str(error)
            raise
        finally:
            pending = PendingSpan(span, time_ns(), failure)
            self._await_outcome(str(lease.job_id), lease.attempt, pending)

    def _start_job_span(self, operation: str, lease: JobAttempt, describe: Describe | None) -> Span:
        attributes = {
            "messaging.destination.name": operation,
            "messaging.message.id": str(lease.job_id),
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            **({} if describe is None else describe(lease)),
        }
        fields = {
            "job_id": str(lease.job_id),
            "attempt": lease.attempt,
            "idempotency_key": lease.key,
        }
        return self._start_span(operation, lease.ids, attributes, fields)

    def _start_span(
        self,
        operation: str,
        ids: Mapping[str, str],
        attributes: Attributes,
        fields: Mapping[str, Any],
    ) -> Span:
        """Start the span of an attempt that processes or sends a message."""
        cause = parse_traceparent(ids.get(TRACEPARENT))
        is_sender = attributes["messaging.operation.type"] == "send"
        return self._tracer.start_span(
            operation,
            context=Context(),
            kind=SpanKind.PRODUCER if is_sender else SpanKind.CONSUMER,
            links=() if cause is None else [Link(cause, {"redrive.link": "cause"})],
            attributes={
                "messaging.system": JOB_SYSTEM,
                **attributes,
                **span_attributes(redact({**ids, **fields})),
            },
        )

    def _await_outcome(self, job_id: str, attempt: int, pending: PendingSpan) -> None:
        """Keep the span until its record arrives. The oldest spans end without, beyond a limit."""
        excess: list[PendingSpan] = []
        with self._lock:
            spans = self._pending.setdefault((job_id, attempt), [])
            spans.append(pending)
            if len(spans) > MAX_SPANS_PER_ATTEMPT:
                excess.append(spans.pop(0))
            if len(self._pending) > MAX_PENDING_ATTEMPTS:
                excess.extend(self._pending.popitem(last=False)[1])
        for span in excess:
            _end(span)

    def _end_pending_spans(self) -> None:
        with self._lock:
            pending = [span for spans in self._pending.values() for span in spans]
            self._pending = OrderedDict()
        for span in pending:
            _end(span)


def otel(
    *, tracer_provider: trace.TracerProvider | None = None, meter_provider: Any = None
) -> OtelSink:
    """Return a sink for OpenTelemetry: `journal.subscribe(journal.otel())`.

    Subscribe it before workers start. Extra: `otel`.

    Args:
        tracer_provider: Default: the global provider.
        meter_provider: Default: the global provider.

    Returns:
        The sink.
    """
    return OtelSink(tracer_provider, meter_provider)


def add_traceparent(ids: Mapping[str, str], /) -> Mapping[str, str]:
    """Return the ids with the current span as `traceparent`, and its `trace_id` if none is set."""
    try:
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return ids
        trace_id = f"{context.trace_id:032x}"
        return {"trace_id": trace_id, **ids, TRACEPARENT: format_traceparent(context)}
    except Exception:  # A custom tracer must not stop the work.
        return ids


def format_traceparent(context: SpanContext, /) -> str:
    """Return the W3C header value of a span."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def parse_traceparent(text: object, /) -> SpanContext | None:
    """Return the span of a W3C header value. None if the value is not valid."""
    parts = text.split("-") if isinstance(text, str) else []
    try:
        version, trace_id, span_id, flags = (int(part, 16) for part in parts[:4])
    except ValueError:
        return None
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if version != 255 and context.is_valid else None


def call_attributes(fields: Mapping[str, Any], /) -> dict[str, str | int | float | bool]:
    """Return the fields of a call's record as attributes, with those that HTTP clients have."""
    attributes = span_attributes(fields)
    method = fields.get("http_method")
    if method is None:
        return attributes
    if method not in HTTP_METHODS:
        attributes["http.request.method"] = "_OTHER"
        attributes["http.request.method_original"] = method
    if fields["attempt"] > 1:
        attributes["http.request.resend_count"] = fields["attempt"] - 1
    if fields.get("error_class") and (fields.get("http_status") or 0) >= 400:
        attributes["error.type"] = str(fields["http_status"])
    address = urlsplit(fields.get("url") or "")
    if address.hostname:
        attributes["server.address"] = address.hostname
        attributes["server.port"] = address.port or DEFAULT_PORTS.get(address.scheme, 443)
    return attributes


def span_attributes(fields: Mapping[str, Any], /) -> dict[str, str | int | float | bool]:
    """Return the fields of a record as attributes of a span."""
    attributes: dict[str, str | int | float | bool] = {}
    for name, value in fields.items():
        if name not in OMITTED_FIELDS and value is not None:
            is_primitive = isinstance(value, (str, int, float, bool))
            attribute = ATTRIBUTE_NAMES.get(name, f"redrive.{name}")
            attributes[attribute] = value if is_primitive else str(value)
    return attributes


def _end(pending: PendingSpan) -> None:
    if pending.error is not None:
        error_class, text = pending.error
        _record_error(pending.span, error_class, redact_text(text), pending.ended_ns)
    pending.span.end(pending.ended_ns)


def _record_error(span: Span, error_class: object, message: object, at_ns: int) -> None:
    attributes = {"exception.type": str(error_class), "exception.message": str(message)}
    span.add_event("exception", attributes, timestamp=at_ns)
    span.set_status(Status(StatusCode.ERROR, f"{error_class}: {message}"))


class _RecordMetrics:
    """Instruments of OpenTelemetry with the names that Prometheus has. Threads may share it."""

    def __init__(self, provider: otel_metrics.MeterProvider | None) -> None:
        meter = otel_metrics.get_meter(SCOPE, meter_provider=provider)
        self._labels = LabelLimiter()
        self._lock = threading.Lock()
        self._instruments: dict[str, Any] = {
            metric.name: _create_instrument(meter, metric) for metric in RECORD_METRICS
        }
        meter.create_observable_counter(DROPPED.name, [_observe_drops], description=DROPPED.help)

    def add(self, record: Record, /) -> None:
        for measurement in measure(record):
            with self._lock:
                metric, value, labels = self._labels.limit(measurement)
            attributes = dict(zip(metric.labels, labels, strict=True))
            instrument = self._instruments[metric.name]
            if metric.kind == "histogram":
                instrument.record(value, attributes)
            else:
                instrument.add(value, attributes)


def observe_measurements(
    read: Callable[[], Iterable[Measurement]], provider: otel_metrics.MeterProvider | None = None, /
) -> None:
    """Read the metrics of the ledger whenever OpenTelemetry collects, while the provider lives."""
    meter = otel_metrics.get_meter(SCOPE, meter_provider=provider)
    for metric in LEDGER_METRICS:

        def observe(_: CallbackOptions, metric: Metric = metric) -> Iterator[Observation]:
            for measurement in read():
                if measurement.metric == metric:
                    attributes = dict(zip(metric.labels, measurement.labels, strict=True))
                    yield Observation(measurement.value, attributes)

        if metric.kind == "counter":
            meter.create_observable_counter(metric.name, [observe], description=metric.help)
        else:
            unit = _unit(metric)
            meter.create_observable_gauge(
                metric.name, [observe], description=metric.help, unit=unit
            )


def _create_instrument(meter: otel_metrics.Meter, metric: Metric) -> Any:
    if metric.kind == "histogram":
        return meter.create_histogram(
            metric.name,
            unit=_unit(metric),
            description=metric.help,
            explicit_bucket_boundaries_advisory=list(BUCKET_SECONDS),
        )
    return meter.create_counter(metric.name, description=metric.help)


def _unit(metric: Metric) -> str:
    return "s" if metric.name.endswith("_seconds") else ""


def _observe_drops(_: CallbackOptions) -> Iterator[Observation]:
    yield Observation(DROPS.count)
