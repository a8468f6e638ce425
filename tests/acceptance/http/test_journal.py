"""Each attempt has one journal record, with latency, status and error class."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import httpx2
import pytest
from opentelemetry.trace import SpanKind

from redrive import correlate, http, journal, retry
from redrive.journal import Record
from redrive.testing import Answer, FaultServer
from tests.acceptance.http.both import QUICK, Mode, client
from tests.spans import attributes_of, record_spans

pytestmark = pytest.mark.req("H-5")


@pytest.fixture
def records() -> Iterator[list[Record]]:
    heard: list[Record] = []
    stop: Callable[[], None] = journal.subscribe(heard.append, every=True, inline=True)
    yield heard
    stop()


def summary_of(record: Record) -> tuple[Any, ...]:
    fields = record.fields
    return record.kind, fields.get("attempt"), fields.get("http_status"), fields.get("error_class")


def test_each_attempt_has_one_record(mode: Mode, server: FaultServer, records: list[Record]) -> None:
    server.script(503, "reset", Answer(201, delay=0.05), 200)
    with client(mode, server.url) as api:
        api.request("PUT", "/a/7?token=hush", json={"password": "hush"}, idempotency_key="k-1")
        api.get("/b", operation="b.get")
    assert [summary_of(record) for record in records] == [
        ("retry", 1, 503, "HTTPStatusError"),
        ("retry", 2, None, "ReadError"),
        ("recovered", 3, 201, None),
        ("success", 1, 200, None),
    ]
    assert all(record.fields["latency_ms"] > 0 for record in records)
    assert records[2].fields["latency_ms"] >= 50
    for record in records[:3]:
        assert record.fields["operation"] == f"PUT 127.0.0.1:{server.port}"
        assert (record.fields["http_method"], record.fields["url"]) == ("PUT", f"{server.url}/a/7")
        assert record.fields["idempotency_key"] == "k-1"
    assert len({record.fields["request_id"] for record in records[:3]}) == 1
    assert records[3].fields["operation"] == "b.get"
    assert "hush" not in str(records)


def test_permanent_and_spent_errors_write_giveup_records(mode: Mode, server: FaultServer, records: list[Record]) -> None:
    server.script(404, "close")
    with client(mode, server.url) as api, correlate(request_id="r-7", user_id="ann"):
        for _ in range(2):
            with pytest.raises(httpx2.HTTPError):
                api.get("/")
    assert [summary_of(record) for record in records] == [
        ("giveup", 1, 404, "HTTPStatusError"),
        ("retry", 1, None, "RemoteProtocolError"),
        ("retry", 2, None, "RemoteProtocolError"),
        ("giveup", 3, None, "RemoteProtocolError"),
    ]
    assert all((record.fields["request_id"], record.fields["user_id"]) == ("r-7", "ann") for record in records)


def test_the_transport_writes_the_same_records(server: FaultServer, records: list[Record]) -> None:
    server.script(503, 200)
    with httpx.Client(transport=http.Transport(retry=retry(QUICK))) as api:
        api.get(f"{server.url}/a?token=hush")
    assert [summary_of(record) for record in records] == [("retry", 1, 503, "HTTPStatusError"), ("recovered", 2, 200, None)]
    assert all(record.fields["url"] == f"{server.url}/a" for record in records)
    assert all(record.fields["latency_ms"] > 0 for record in records)
    assert "hush" not in str(records)


def test_attempts_are_logged(mode: Mode, server: FaultServer, caplog: pytest.LogCaptureFixture) -> None:
    server.script(503, 200)
    with client(mode, server.url) as api, caplog.at_level(logging.INFO, "redrive"):
        api.get("/")
    first, last = (record for record in caplog.records if record.name == "redrive")
    assert first.getMessage().startswith(f"GET 127.0.0.1:{server.port}: attempt 1 of 3 failed (HTTPStatusError: Server error")
    assert first.redrive["http_status"] == 503  # type: ignore[attr-defined]
    assert last.getMessage() == f"GET 127.0.0.1:{server.port}: attempt 2 of 3 succeeded"


def test_fields_of_a_call_are_removed_after_it(mode: Mode, server: FaultServer, records: list[Record]) -> None:
    with client(mode, server.url) as api:
        api.get("/")
        retry(lambda: None)()
    assert "http_status" not in records[-1].fields
    assert "request_id" not in records[-1].fields


@pytest.mark.req("X-10")
def test_each_attempt_is_a_client_span_with_the_number_of_the_resend(mode: Mode, server: FaultServer) -> None:
    server.script(503, "reset", 201, 404)
    with record_spans() as tracing, client(mode, server.url, alone=False) as api:
        api.request("PUT", "/a/7?token=hush", json={"password": "hush"})
        with pytest.raises(httpx2.HTTPStatusError):
            api.request("PURGE", "/b")
        unavailable, reset, created, missing = tracing.spans()
    server_attributes = {"server.address": "127.0.0.1", "server.port": server.port}
    put = {"http.request.method": "PUT", "url.full": f"{server.url}/a/7", **server_attributes}
    assert attributes_of(unavailable) == {**put, "http.response.status_code": 503, "error.type": "503"}
    assert attributes_of(reset) == {**put, "http.request.resend_count": 1, "error.type": "ReadError"}
    assert attributes_of(created) == {**put, "http.request.resend_count": 2, "http.response.status_code": 201}
    assert attributes_of(missing) == {
        "http.request.method": "_OTHER",
        "http.request.method_original": "PURGE",
        "url.full": f"{server.url}/b",
        "http.response.status_code": 404,
        "error.type": "404",
        **server_attributes,
    }
    assert {span.kind for span in (unavailable, reset, created, missing)} == {SpanKind.CLIENT}
    assert "hush" not in "".join(span.to_json() for span in (unavailable, reset, created, missing))


@pytest.mark.req("X-10")
def test_a_body_that_breaks_is_an_error_of_its_class(mode: Mode, server: FaultServer) -> None:
    server.script(Answer(200, body=b"abc", trouble="cut"), 200)
    with record_spans() as tracing, client(mode, server.url, alone=False) as api:
        api.get("/")
        broken, _ = tracing.spans()
    assert attributes_of(broken)["error.type"] == "RemoteProtocolError"
