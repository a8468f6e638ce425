"""The OpenTelemetry sink: a span for each attempt, and the metrics. Extra: `otel`; exporters are the program's own.

An attempt of a call becomes a span when its record comes, with the times it had, under the span that was open around the call.
An attempt of a job has a span that is open while it runs, so that what it calls and submits hangs on it; it is ended when the
ledger's word on it is known, and linked to the span that was open where the job was submitted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import time_ns
from typing import Any, NamedTuple, Protocol

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ModuleNotFoundError as missing:
    raise ImportError('journal.otel() needs OpenTelemetry: pip install "redrive[otel]"') from missing

from ..core.context import CARRIERS
from ..core.signature import said
from ..errors import Again, Blocked
from .bus import LOSSES, WRAPS
from .meters import Meters
from .metrics import ENDS
from .record import Record
from .redaction import redacted, redacted_text

SCOPE = "redrive"
PARENT = "traceparent"
KNOWN = {
    "error_class": "error.type",
    "http_method": "http.request.method",
    "http_status": "http.response.status_code",
    "url": "url.full",
}
"""Fields that OpenTelemetry has names of its own for; all others are redrive.*"""
HIDDEN = frozenset((PARENT, "trace_id", "error", "operation"))
"""Not attributes: they are the span's context, its status and its name."""
OPEN = 10_000
"""Attempts of jobs that have ended and whose record has not come yet."""
SAME = 16
"""How many attempts of one number wait for it: those of a job that asks again and again to be left uncharged."""


class Lease(Protocol):
    """What is known of a job's attempt."""

    @property
    def job_id(self) -> int:
        """Its number."""

    @property
    def attempt(self) -> int:
        """From 1."""

    @property
    def key(self) -> str:
        """Its key."""

    @property
    def ids(self) -> Mapping[str, str]:
        """Correlation ids of whoever submitted it."""


class Ended(NamedTuple):
    """A span of a job's attempt, whose outcome is not known yet."""

    span: Span
    at: int
    failed: tuple[str, str] | None
    """The error's type and words: the error itself would keep everything alive that its frames know."""


class Spans:
    """Makes spans and counts, by the tracer and meter that the program has set up. Threads may share it."""

    every = True

    def __init__(self, tracer_provider: trace.TracerProvider | None, meter_provider: Any) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._meters = Meters(meter_provider)
        self._ended: OrderedDict[tuple[str, int], list[Ended]] = OrderedDict()
        self._lock = threading.Lock()

    # ---- as a sink ----

    def __call__(self, record: Record, /) -> None:
        self._meters.count(record)
        if record.kind in ENDS and record.fields.get("attempt") and "item" not in record.fields:
            if "job_id" in record.fields:
                self._outcome(record)
            else:
                self._call(record)

    def attached(self) -> Callable[[], None]:
        """From now on ids carry the span that is open, and workers that start open one for each attempt."""
        CARRIERS.append(carried)
        WRAPS.append(self.wrap)

        def detach() -> None:
            CARRIERS.remove(carried)
            WRAPS.remove(self.wrap)
            self._end_all()

        return detach

    def _call(self, record: Record) -> None:
        fields = record.fields
        end = round(record.at.timestamp() * 1e9)
        start = end - round((fields.get("latency_ms") or 0.0) * 1e6)
        parent = span_context(fields.get(PARENT))
        span = self._tracer.start_span(
            fields.get("operation") or "call",
            context=Context() if parent is None else trace.set_span_in_context(NonRecordingSpan(parent), Context()),
            kind=SpanKind.CLIENT if "http_method" in fields else SpanKind.INTERNAL,
            attributes={"redrive.outcome": record.kind, **attributes(fields)},
            start_time=start,
        )
        if "error" in fields:
            _failed(span, fields.get("error_class"), fields["error"], end)
        span.end(end)

    def _outcome(self, record: Record) -> None:
        with self._lock:
            which = record.fields["job_id"], record.fields["attempt"]
            found = self._ended.get(which)
            if found is None:
                return
            first = found.pop(0)  # a free attempt has the number of the one after it
            if not found:
                del self._ended[which]
        first.span.set_attributes({"redrive.outcome": record.kind, **attributes(record.fields)})
        _end(first)

    # ---- around an attempt of a job ----

    def wrap(self, operation: str, colour: str, run: Callable[..., Any], /) -> Callable[..., Any]:
        """A kind's function inside a span."""
        if colour == "async":

            async def arun(lease: Lease) -> Any:
                with self._attempt(operation, lease):
                    return await run(lease)

            return arun
        if colour == "transaction":

            def run_in(connection: Any, lease: Lease) -> Any:
                with self._attempt(operation, lease):
                    return run(connection, lease)

            return run_in

        def plain(lease: Lease) -> Any:
            with self._attempt(operation, lease):
                return run(lease)

        return plain

    @contextmanager
    def _attempt(self, operation: str, lease: Lease) -> Iterator[None]:
        try:
            span = self._started(operation, lease)
        except Exception:  # a tracer that raises: the work goes on without its span
            LOSSES.add()
            yield
            return
        failed: tuple[str, str] | None = None
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            failed = None if isinstance(error, (Again, Blocked)) else (type(error).__name__, said(error))
            raise
        finally:
            self._put(str(lease.job_id), lease.attempt, Ended(span, time_ns(), failed))

    def _started(self, operation: str, lease: Lease) -> Span:
        cause = span_context(lease.ids.get(PARENT))
        known = {**lease.ids, "job_id": str(lease.job_id), "attempt": lease.attempt, "idempotency_key": lease.key}
        return self._tracer.start_span(
            operation,
            context=Context(),
            kind=SpanKind.CONSUMER,
            links=() if cause is None else [Link(cause, {"redrive.link": "cause"})],
            attributes=attributes(redacted(known)),
        )

    def _put(self, job_id: str, attempt: int, ended: Ended) -> None:
        """Wait for the ledger's word; the oldest one goes without it, where there are too many."""
        over: list[Ended] = []
        with self._lock:
            same = self._ended.setdefault((job_id, attempt), [])
            same.append(ended)
            if len(same) > SAME:
                over.append(same.pop(0))
            if len(self._ended) > OPEN:
                over.extend(self._ended.popitem(last=False)[1])
        for each in over:
            _end(each)

    def _end_all(self) -> None:
        with self._lock:
            left, self._ended = [one for same in self._ended.values() for one in same], OrderedDict()
        for each in left:
            _end(each)


def carried(ids: Mapping[str, str], /) -> Mapping[str, str]:
    """The ids, with the span that is open as `traceparent`; and its trace, where no other trace id was given."""
    try:
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return ids
        return {"trace_id": f"{context.trace_id:032x}", **ids, PARENT: traceparent(context)}
    except Exception:  # a tracer of somebody's own
        return ids


def traceparent(context: SpanContext, /) -> str:
    """As W3C writes it."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def span_context(text: object, /) -> SpanContext | None:
    """What a `traceparent` says; None where it is none."""
    parts = text.split("-") if isinstance(text, str) else []
    try:
        version, trace_id, span_id, flags = (int(part, 16) for part in parts[:4])
    except ValueError:
        return None
    found = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return found if version != 255 and found.is_valid else None


def attributes(fields: Mapping[str, Any], /) -> dict[str, str | int | float | bool]:
    """What a span says of an attempt."""
    found: dict[str, str | int | float | bool] = {}
    for name, value in fields.items():
        if name not in HIDDEN and value is not None:
            found[KNOWN.get(name, f"redrive.{name}")] = value if isinstance(value, (str, int, float, bool)) else str(value)
    return found


def _end(ended: Ended) -> None:
    if ended.failed is not None:
        _failed(ended.span, ended.failed[0], redacted_text(ended.failed[1]), ended.at)
    ended.span.end(ended.at)


def _failed(span: Span, kind: object, message: object, at: int) -> None:
    told = {"exception.type": str(kind), "exception.message": str(message)}
    span.add_event("exception", told, timestamp=at)
    span.set_status(Status(StatusCode.ERROR, f"{kind}: {message}"))


def otel(*, tracer_provider: trace.TracerProvider | None = None, meter_provider: Any = None) -> Spans:
    """Return a sink for OpenTelemetry: `journal.subscribe(journal.otel())`.

    Subscribe it before workers start. Extra: `otel`.

    Args:
        tracer_provider: Default: the global provider.
        meter_provider: Default: the global provider.

    Returns:
        The sink.
    """
    return Spans(tracer_provider, meter_provider)
