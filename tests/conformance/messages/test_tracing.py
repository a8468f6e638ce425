"""Spans of messages: one for each that is sent, and one for each attempt of a handler, linked to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span, SpanContext, SpanKind, StatusCode

from redrive import App, Event, RetryPolicy, journal
from redrive.journal.sinks.otel import format_traceparent, parse_traceparent
from redrive.ledger import Ledger
from redrive.messages import Message, RabbitQueue, Source
from redrive.messages.direct import DirectLayer
from tests.conformance.messages.brokers import Broker
from tests.conformance.messages.shop import work
from tests.spans import Traced, attributes_of, record_spans

pytestmark = pytest.mark.req("X-10")
SOON = RetryPolicy(3, 0.01, 0.01, 0)
SYSTEMS = {"RedisStream": "redis", "NatsStream": "nats", "KafkaTopic": "kafka", "RabbitQueue": "rabbitmq"}
ELSEWHERE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
"""The span of another program."""


@pytest.fixture
def tracing() -> Iterator[Traced]:
    with record_spans() as made:
        yield made


def link_of(span: ReadableSpan) -> int:
    """Return the id of the span that caused this one."""
    (link,) = span.links
    return link.context.span_id


def context_of(span: Span | ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def id_of(span: Span | ReadableSpan) -> int:
    return context_of(span).span_id


def broker_of(source: Source) -> dict[str, Any]:
    """Return the attributes that sent and processed messages share."""
    attributes: dict[str, Any] = {
        "messaging.system": SYSTEMS[type(source).__name__],
        "messaging.destination.name": source.name,
        "messaging.message.id": "p-1",
    }
    servers: str = source.servers  # type: ignore[attr-defined]
    if "," not in servers:
        host, _, port = servers.rpartition(":")
        attributes |= {"server.address": host, "server.port": int(port)}
    return attributes


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("persist", ["all", "failures"])
def test_a_message_links_its_sender_to_its_handler(
    ledger: Ledger, broker: Broker, tracing: Traced, persist: Any, is_async: bool
) -> None:
    source = broker.source()
    app = App(ledger, sources=[source])
    seen: list[Event[Any]] = []

    def book(event: Event[Any]) -> None:
        with tracing.tracer.start_as_current_span("inside"):
            seen.append(event)

    async def abook(event: Event[Any]) -> None:
        book(event)

    app.on("paid", name="book", persist=persist)(abook if is_async else book)
    with tracing.tracer.start_as_current_span("checkout") as checkout:
        app.publish(Event("paid", {"order": 7}, id="p-1"), to=source.name)
    work(app, lambda: seen and len(tracing.spans()) == 4)

    (sent,), (processed,) = tracing.spans(f"publish:{source.name}"), tracing.spans("book")
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert (link_of(sent), link_of(processed)) == (id_of(checkout), id_of(sent))
    assert seen[0].headers["traceparent"] == format_traceparent(context_of(sent))
    send = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
    process = {"messaging.operation.name": "process", "messaging.operation.type": "process"}
    if not isinstance(source, RabbitQueue):  # It has no groups.
        process["messaging.consumer.group.name"] = "shop"
    assert attributes_of(sent) == {**broker_of(source), **send}
    assert attributes_of(processed) == {**broker_of(source), **process}
    assert {span.attributes["redrive.outcome"] for span in (sent, processed) if span.attributes} == {"success"}
    assert (sent.status.status_code, processed.status.status_code) == (StatusCode.UNSET,) * 2
    (inside,) = tracing.spans("inside")
    assert inside.parent is not None
    assert inside.parent.span_id == id_of(processed)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_direct_call_that_fails_has_a_span_beside_those_of_its_job(
    ledger: Ledger, broker: Broker, tracing: Traced, is_async: bool
) -> None:
    app = App(ledger, sources=[broker.source()])
    calls: list[str] = []

    def book(event: Event[Any]) -> None:
        calls.append(event.id)
        if len(calls) == 1:
            raise ConnectionError("token=s3cret")

    async def abook(event: Event[Any]) -> None:
        book(event)

    app.on("paid", name="book", persist="failures", retry=SOON)(abook if is_async else book)
    broker.send("p-1")
    work(app, lambda: len(tracing.spans("book")) == 3)
    direct, first, second = sorted(tracing.spans("book"), key=lambda span: span.end_time or 0)
    assert direct.attributes is not None
    assert "redrive.outcome" not in direct.attributes, "the first attempt of the job has it"
    assert "redrive.job_id" not in direct.attributes
    assert (direct.attributes["error.type"], direct.status.status_code) == ("ConnectionError", StatusCode.ERROR)
    assert "s3cret" not in direct.to_json()
    outcomes = [
        (span.attributes["redrive.attempt"], span.attributes["redrive.outcome"]) for span in (first, second) if span.attributes
    ]
    assert outcomes == [(1, "retry"), (2, "recovered")]
    assert {span.attributes["messaging.message.id"] for span in (direct, first, second) if span.attributes} == {"p-1"}


def test_a_message_that_cannot_be_decoded_has_a_span(ledger: Ledger, broker: Broker, tracing: Traced) -> None:
    def decode(message: Message) -> Event[Any]:
        raise ValueError("no type")

    source = broker.source(decode=decode)
    app = App(ledger, sources=[source])
    app.on("paid", name="book")(lambda event: None)
    broker.send("p-1")
    work(app, lambda: ledger.dead_letters() and tracing.spans())
    (span,) = tracing.spans()
    attributes = attributes_of(span)
    (letter,) = ledger.dead_letters()
    assert (attributes["messaging.system"], attributes["messaging.destination.name"]) == (
        SYSTEMS[type(source).__name__],
        source.name,
    )
    assert attributes["messaging.message.id"] == letter.source_id
    assert attributes["error.type"]


class Sent:
    """A destination that keeps what it gets, and fails at first if it is asked to."""

    name = "invoices"

    def __init__(self, failures: int = 0) -> None:
        self.messages: list[Message] = []
        self.failures = failures

    def publisher(self) -> Sent:
        return self

    def publish(self, messages: Sequence[Message], /) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("away")
        self.messages += messages

    def close(self) -> None: ...


def test_each_attempt_to_send_is_a_span_and_the_message_has_the_last(ledger: Ledger, tracing: Traced) -> None:
    destination = Sent(failures=1)
    app = App(ledger, destinations=[destination])
    app.publish(Event("paid", 1, id="p-1"), to="invoices")
    work(app, lambda: len(tracing.spans()) == 2)
    failed, sent = tracing.spans("publish:invoices")
    assert attributes_of(failed)["error.type"] == "ConnectionError"
    assert attributes_of(sent) == {
        "messaging.system": "sent",
        "messaging.destination.name": "invoices",
        "messaging.message.id": "p-1",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    (message,) = destination.messages
    parent = parse_traceparent(message.headers["traceparent"])
    assert parent is not None
    assert parent.span_id == id_of(sent)


@pytest.mark.parametrize("name", ["traceparent", "Traceparent"])
def test_an_event_keeps_the_traceparent_that_it_has(ledger: Ledger, tracing: Traced, name: str) -> None:
    destination = Sent()
    app = App(ledger, destinations=[destination])
    app.publish(Event("paid", 1, id="p-1", headers={name: ELSEWHERE}), to="invoices")
    work(app, lambda: destination.messages)
    (message,) = destination.messages
    assert {key: value for key, value in message.headers.items() if key.lower() == "traceparent"} == {name: ELSEWHERE}


def test_an_event_of_the_program_is_a_message_of_redrive(ledger: Ledger, tracing: Traced) -> None:
    app = App(ledger)
    app.on("paid", name="book")(lambda event: None)
    app.receive(Event("paid", 1, id="p-1", source="crm"))
    work(app, lambda: tracing.spans("book"))
    (span,) = tracing.spans("book")
    assert attributes_of(span) == {
        "messaging.system": "redrive",
        "messaging.destination.name": "crm",
        "messaging.message.id": "p-1",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
    }


def test_without_a_sink_handlers_are_not_wrapped_and_messages_have_no_traceparent(ledger: Ledger) -> None:
    destination = Sent()
    app = App(ledger, destinations=[destination])
    app.on("paid", name="book", persist="failures")(lambda event: None)
    (handler,) = app.registrations.inbox.handlers
    assert DirectLayer(handler, {}).fn is handler.fn
    app.publish(Event("paid", 1, id="p-1"), to="invoices")
    work(app, lambda: destination.messages)
    assert destination.messages[0].headers == {"type": "paid", "id": "p-1"}


def test_a_worker_without_the_sink_sends_the_span_of_the_publisher(ledger: Ledger) -> None:
    destination = Sent()
    app = App(ledger, destinations=[destination])
    with record_spans() as made, made.tracer.start_as_current_span("checkout") as checkout:
        app.publish(Event("paid", 1, id="p-1"), to="invoices")
    work(app, lambda: destination.messages)
    assert destination.messages[0].headers["traceparent"] == format_traceparent(checkout.get_span_context())


def test_a_tracer_that_raises_does_not_fail_a_direct_call(ledger: Ledger, broker: Broker) -> None:
    class Broken:
        def start_span(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("a tracer of somebody's")

        def get_tracer(self, *_: Any, **__: Any) -> Broken:
            return self

    app = App(ledger, sources=[broker.source()])
    seen: list[str] = []
    app.on("paid", name="book", persist="failures")(lambda event: seen.append(event.id))
    broker.send("p-1")
    unsubscribe = journal.subscribe(journal.otel(tracer_provider=Broken()))  # type: ignore[arg-type]
    try:
        work(app, lambda: seen)
    finally:
        unsubscribe()
    assert seen == ["p-1"]
    assert ledger.counts() == {}
