"""Sinks of the journal that wrap attempts: a record on Temporal has the attempt that it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import sentry_sdk
from opentelemetry.sdk.trace import ReadableSpan

from redrive import App, RetryPolicy, journal
from tests.spans import record_spans

QUICK = RetryPolicy(max_attempts=2, backoff_base=0.02, backoff_max=0.05, jitter=0)
SOON = 60.0


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.req("X-10")
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_the_span_of_an_activity_ends_with_its_outcome(app: App, is_async: bool) -> None:
    calls: list[int] = []

    def send() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("down")

    async def asend() -> None:
        send()

    command = app.command("mail.send", retry=QUICK)(asend if is_async else send)
    with record_spans() as tracing:
        with tracing.tracer.start_as_current_span("checkout") as checkout:
            job = command.submit()
        with app.worker():
            job.result(SOON)
            until(lambda: len(tracing.spans("mail.send")) == 2)
        failed, done = tracing.spans("mail.send")

    def summary_of(span: ReadableSpan) -> tuple[Any, ...]:
        assert span.attributes is not None
        (link,) = span.links
        names = ("redrive.attempt", "redrive.outcome", "messaging.message.id", "redrive.job_id", "error.type")
        return link.context.span_id, *(span.attributes.get(name) for name in names)

    cause = checkout.get_span_context().span_id
    assert summary_of(failed) == (cause, 1, "retry", job.id, job.id, "ConnectionError")
    assert summary_of(done) == (cause, 2, "recovered", job.id, job.id, None)


@pytest.mark.req("X-7")
def test_a_dead_letter_has_its_stack_trace_in_sentry(app: App) -> None:
    events: list[Any] = []

    def keep(event: Any, _hint: Any) -> None:
        events.append(event)

    @app.command("mail.send", retry=QUICK)
    def send() -> None:
        raise ConnectionError("down")

    sentry_sdk.init(dsn="http://public@127.0.0.1:1/1", before_send=keep, default_integrations=False)
    unsubscribe = journal.subscribe(journal.sentry())
    try:
        send.submit()
        with app.worker():
            until(lambda: journal.flush() and events)
    finally:
        unsubscribe()
        sentry_sdk.get_client().close(timeout=0.1)
        sentry_sdk.get_global_scope().set_client(None)
    (error,) = events[0]["exception"]["values"]
    assert error["type"] == "ConnectionError"
    assert error["stacktrace"]["frames"][-1]["function"] == "send"
