"""The OpenTelemetry sink, with the real SDK and in-memory exporters."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes, url_attributes
from opentelemetry.trace import SpanKind, StatusCode

from redrive import Again, App, RetryPolicy, correlate, journal, retry
from redrive.journal.metrics import LEDGER_METRICS, PARTITIONS, RECORD_METRICS
from redrive.journal.sinks.otel import call_attributes, format_traceparent, parse_traceparent
from redrive.messages import KafkaTopic
from redrive.messages.tracing import source_attributes
from redrive.ops import observe_ledger
from redrive.testing import inject, instant
from tests.spans import Traced, attributes_of, record_spans

QUICK = RetryPolicy(max_attempts=3, backoff_base=0.0, jitter=0.0)


@pytest.fixture
def tracing() -> Iterator[Traced]:
    with record_spans() as made:
        yield made


@retry(operation="crm.fetch", max_attempts=2)
def fetch() -> str:
    return "ok"


@pytest.mark.req("J-3", "H-5", "J-4")
def test_each_attempt_of_a_call_is_a_child_of_the_current_span(tracing: Traced) -> None:
    failing = inject(fetch, ConnectionError("token=s3cret"))
    with tracing.tracer.start_as_current_span("request") as around, correlate(request_id="r-1"), instant(), failing:
        fetch()
    failed, recovered = tracing.spans("crm.fetch")
    for span in (failed, recovered):
        assert span.parent is not None
        assert span.parent.span_id == around.get_span_context().span_id
        assert span.attributes is not None
        assert span.attributes["redrive.request_id"] == "r-1"
    assert failed.attributes is not None
    assert recovered.attributes is not None
    assert (failed.status.status_code, failed.attributes["redrive.outcome"]) == (StatusCode.ERROR, "retry")
    assert failed.attributes["error.type"] == "ConnectionError"
    assert (recovered.status.status_code, recovered.attributes["redrive.outcome"]) == (StatusCode.UNSET, "recovered")
    assert "s3cret" not in failed.to_json()


@pytest.mark.req("J-3")
def test_a_first_success_is_a_span(tracing: Traced) -> None:
    fetch()
    (span,) = tracing.spans("crm.fetch")
    assert span.parent is None
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= span.end_time


@pytest.mark.req("J-2", "J-3")
def test_a_job_span_links_to_its_submitter_and_has_children(tracing: Traced) -> None:
    tried: list[int] = []
    ended = threading.Event()
    with App("sqlite://") as app:

        @app.command("second")
        def second() -> None:
            ended.set()

        @app.command("first", retry=retry(QUICK, on=ConnectionError))
        def first() -> None:
            tried.append(1)
            if len(tried) == 1:
                raise ConnectionError("token=s3cret")
            fetch()
            second.submit()

        with tracing.tracer.start_as_current_span("request") as around:
            first.submit()
        with app.worker(threads=1):
            assert ended.wait(30)
    failed, done = tracing.spans("first")
    cause = around.get_span_context()
    for span in (failed, done):
        assert span.kind is SpanKind.CONSUMER
        assert span.parent is None
        assert [link.context.span_id for link in span.links] == [cause.span_id]
        assert span.attributes is not None
    assert failed.attributes is not None
    assert done.attributes is not None
    assert (failed.attributes["redrive.outcome"], failed.status.status_code) == ("retry", StatusCode.ERROR)
    assert (done.attributes["redrive.outcome"], done.attributes["redrive.attempt"]) == ("recovered", 2)
    (inner,) = tracing.spans("crm.fetch")
    assert inner.parent is not None
    assert done.context is not None
    assert inner.parent.span_id == done.context.span_id
    (last,) = tracing.spans("second")
    assert [link.context.span_id for link in last.links] == [done.context.span_id]
    assert "s3cret" not in failed.to_json()


@pytest.mark.req("J-3")
def test_async_transaction_and_repeated_jobs_have_spans(tracing: Traced) -> None:
    asked: list[int] = []
    with App("sqlite://") as app:

        @app.command("async")
        async def later() -> None:
            await asyncio.sleep(0)

        @app.command("inside", in_transaction=True)
        def inside(tx: Any) -> None:
            asked.append(1)
            if len(asked) == 1:
                raise Again("not yet", after=0, free=True)

        jobs = later.submit(), inside.submit()
        with app.worker(threads=2):
            for job in jobs:
                job.result(30)
    assert [span.status.status_code for span in tracing.spans("inside")] == [StatusCode.UNSET] * 2
    outcomes = [span.attributes["redrive.outcome"] for span in tracing.spans("inside") if span.attributes]
    assert outcomes[0] == "again"
    assert len(tracing.spans("async")) == 1


@pytest.mark.req("J-3")
def test_metrics_have_the_names_of_prometheus(tracing: Traced) -> None:
    fetch()
    with App("sqlite://") as app:

        @app.command("mail")
        def mail() -> None: ...

        mail.submit()
        observe_ledger(app, meter_provider=tracing.meters)
        assert journal.flush()
        found = tracing.metrics()
    names = {metric.name for metric in LEDGER_METRICS if metric is not PARTITIONS}  # the ledger has no partitions
    assert names <= found.keys()
    assert {"redrive_attempts_total", "redrive_attempt_seconds"} <= found.keys() & {metric.name for metric in RECORD_METRICS}
    (point,) = found["redrive_attempts_total"]
    assert (point.value, dict(point.attributes)) == (1, {"layer": "call", "operation": "crm.fetch", "outcome": "success"})
    waiting = [point.value for point in found["redrive_jobs"] if dict(point.attributes) == {"kind": "mail", "state": "waiting"}]
    assert waiting == [1]


@pytest.mark.req("J-3")
def test_a_tracer_that_raises_does_not_fail_the_job() -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("a processor of somebody's")

    provider = TracerProvider()
    provider.add_span_processor(Broken())
    done = threading.Event()
    before = journal.dropped()
    unsubscribe = journal.subscribe(journal.otel(tracer_provider=provider, meter_provider=MeterProvider()))
    try:
        with App("sqlite://") as app:

            @app.command("mail")
            def mail() -> None:
                done.set()

            mail.submit()
            with app.worker(threads=1):
                assert done.wait(30)
        assert fetch() == "ok"
        assert journal.flush()
    finally:
        unsubscribe()
    assert journal.dropped() >= before + 2


@pytest.mark.req("J-3")
def test_a_blocked_exporter_does_not_delay_calls() -> None:
    release, stuck = threading.Event(), threading.Event()

    class Slow(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            stuck.set()
            release.wait(30)

    provider = TracerProvider()
    provider.add_span_processor(Slow())
    unsubscribe = journal.subscribe(journal.otel(tracer_provider=provider, meter_provider=MeterProvider()))
    try:
        with App("sqlite://") as app:

            @app.command("mail")
            def mail() -> int:
                return len([fetch() for _ in range(3)])

            with app.worker(threads=1):
                first, second = mail.submit(), mail.submit()
                assert (first.result(30), second.result(30)) == (3, 3)
            assert stuck.wait(30)
    finally:
        release.set()
        unsubscribe()


@pytest.mark.parametrize("text", [None, "", "00-1-2", f"zz-{'1' * 32}-{'2' * 16}-01", f"00-{'0' * 32}-{'2' * 16}-01"])
def test_an_invalid_traceparent_is_ignored(text: object) -> None:
    assert parse_traceparent(text) is None


def test_a_traceparent_round_trips() -> None:
    text = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    found = parse_traceparent(text)
    assert found is not None
    assert format_traceparent(found) == text


ERROR_503 = {"http_method": "PURGE", "http_status": 503, "error_class": "HTTPStatusError", "attempt": 3, "url": "http://crm/a"}


@pytest.mark.req("X-10")
def test_attributes_have_names_of_the_conventions(tracing: Traced) -> None:
    with App("sqlite://") as app:
        mail = app.command("mail")(lambda: None)
        job = mail.submit()
        with app.worker(threads=1):
            job.result(30)
    (span,) = tracing.spans("mail")
    modules = (error_attributes, http_attributes, messaging_attributes, server_attributes, url_attributes)
    known = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    assert attributes_of(span).keys() < known
    assert {name for name in call_attributes(ERROR_503) if not name.startswith("redrive.")} < known
    assert source_attributes(KafkaTopic("k1:9092", "orders", group="shop")).keys() < known


@pytest.mark.req("X-10")
def test_a_job_is_a_message_of_redrive(tracing: Traced) -> None:
    with App("sqlite://") as app:
        mail = app.command("mail")(lambda: None)
        job = mail.submit()
        with app.worker(threads=1):
            job.result(30)
    (span,) = tracing.spans("mail")
    assert attributes_of(span) == {
        "messaging.system": "redrive",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
    }


@pytest.mark.req("X-10")
@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("http://crm/a", ("crm", 80)),
        ("https://crm:8443/a", ("crm", 8443)),
        ("https://[::1]/a", ("::1", 443)),
        ("/a", ()),
        ("https://crm:https/a", ()),
        ("http://[::1/a", ()),
    ],
)
def test_the_server_is_taken_from_a_valid_url(url: str, server: tuple[object, ...]) -> None:
    found = call_attributes({**ERROR_503, "url": url})
    assert tuple(found[name] for name in ("server.address", "server.port") if name in found) == server


@pytest.mark.req("X-10")
def test_a_provider_of_another_type_is_rejected() -> None:
    expected = "journal.otel(): tracer_provider must have get_tracer(), as the SDK's provider has, not str"
    with pytest.raises(TypeError, match=re.escape(expected)):
        journal.otel(tracer_provider="http://collector:4317")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=re.escape("meter_provider must have get_meter()")):
        journal.otel(meter_provider=InMemoryMetricReader())


@pytest.mark.req("X-10")
def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(journal.__dict__, "otel", raising=False)
    monkeypatch.delitem(sys.modules, "redrive.journal.sinks.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError) as raised:
        journal.otel  # noqa: B018  # loaded when it is used
    assert str(raised.value) == 'journal.otel() needs OpenTelemetry: pip install "redrive[otel]"'
