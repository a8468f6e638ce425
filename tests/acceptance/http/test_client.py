"""The clients, over real connections to a server with scripted faults."""

from __future__ import annotations

from dataclasses import dataclass

import httpx2
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from redrive import Budget, Key, RetryPolicy, correlate, errors, http, outcome, retry
from redrive.testing import Answer, FaultServer, inject, instant, refused
from tests.acceptance.http.both import QUICK, Mode, client


@dataclass
class Session:
    id: str
    state: str = "new"


SESSION = Answer(200, {"content-type": "application/json"}, b'{"id": "s-1", "state": "ready", "more": 1}')


@pytest.mark.req("H-1")
def test_a_call_sends_its_options(mode: Mode, server: FaultServer) -> None:
    server.script(SESSION)
    with client(mode, f"{server.url}/v1/", headers={"X-Team": "crm"}) as api:
        assert api.get("/sessions/s-1", params={"q": "a b"}, into=Session) == Session("s-1", "ready")
        assert api.post("sessions", json={"n": 1}, headers={"x-team": "ops"}).json()["id"] == "s-1"
        assert api.request("put", "/x", content=b"raw").status_code == 200
    asked, posted, put = server.requests
    assert (asked.method, asked.path, asked.headers["x-team"]) == ("GET", "/v1/sessions/s-1?q=a+b", "crm")
    assert (posted.path, posted.body, posted.headers["content-type"]) == ("/v1/sessions", b'{"n":1}', "application/json")
    assert posted.headers["x-team"] == "ops"
    assert (put.method, put.body) == ("PUT", b"raw")
    assert server.connections == 1


@pytest.mark.req("H-2")
def test_attempts_of_a_call_have_the_same_headers(mode: Mode, server: FaultServer) -> None:
    server.script(503, "reset", SESSION)
    with client(mode, server.url, auth="t0ken", user="ann") as api:
        api.using(user="bob").post("/configure", json={}, idempotency_key=Key("interview", "bob", "s-1", "configure"))
    attempts = server.requests
    assert [seen.headers["x-attempt"] for seen in attempts] == ["1", "2", "3"]
    assert {seen.headers["idempotency-key"] for seen in attempts} == {"interview:bob:s-1:configure:v1"}
    assert {seen.headers["authorization"] for seen in attempts} == {"Bearer t0ken"}
    assert {seen.headers["x-user-id"] for seen in attempts} == {"bob"}
    assert len({seen.headers["x-request-id"] for seen in attempts}) == 1
    assert {seen.body for seen in attempts} == {b"{}"}


@pytest.mark.req("H-2")
def test_request_ids_are_new_unless_set(mode: Mode, server: FaultServer) -> None:
    with client(mode, server.url) as api:
        api.get("/")
        api.get("/")
        with correlate(request_id="req-7"):
            api.get("/")
            api.get("/", headers={"x-request-id": "mine"})
    ids = [seen.headers["x-request-id"] for seen in server.requests]
    assert len(set(ids)) == 4
    assert ids[2:] == ["req-7", "mine"]
    assert not any("authorization" in seen.headers or "x-user-id" in seen.headers for seen in server.requests)


@pytest.mark.req("H-2")
def test_an_active_trace_is_propagated(mode: Mode, server: FaultServer) -> None:
    with client(mode, server.url) as api:
        api.get("/")
        span = TracerProvider().get_tracer("test").start_span("outer")
        with trace.use_span(span, end_on_exit=True):
            api.get("/")
            api.get("/", headers={"traceparent": "00-1-1-00"})
    without, within, own = server.requests
    assert "traceparent" not in without.headers
    context = span.get_span_context()
    assert within.headers["traceparent"] == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert own.headers["traceparent"] == "00-1-1-00"


@pytest.mark.req("H-4")
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"id": 7}', r"\$\.id: expected str, not a number"),
        (b'{"state": "x"}', r"\$\.id: missing"),
        (b"[]", r"\$: expected an object for Session, not a list"),
        (b"<html>", r"\$: not JSON \(text/html\): Expecting value: line 1 column 1"),
        (b"", r"\$: no body"),
    ],
)
def test_a_mismatch_with_into_is_not_retried(mode: Mode, server: FaultServer, body: bytes, message: str) -> None:
    server.script(Answer(200, {"content-type": "text/html"}, body))
    with client(mode, server.url) as api, pytest.raises(httpx2.DecodingError, match=message) as caught:
        api.get("/s?token=hush", into=Session)
    assert server.count == 1
    assert str(caught.value).startswith(f"GET {server.url}/s returned 200, but the response does not fit into=: ")
    assert "hush" not in str(caught.value)
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "not_retryable"


@pytest.mark.req("H-4")
def test_a_mismatch_with_into_is_retried_if_on_includes_it(mode: Mode, server: FaultServer) -> None:
    server.script(Answer(body=b"{"), SESSION)
    with client(mode, server.url, retry=retry(QUICK, on=httpx2.DecodingError)) as api:
        assert api.get("/", into=Session).state == "ready"


@pytest.mark.req("H-7")
def test_ok_statuses_are_not_errors(mode: Mode, server: FaultServer) -> None:
    server.script(Answer(409, body=b'{"id": "s-1"}'))
    with client(mode, server.url) as api:
        assert api.post("/", json={}, ok_statuses={409}).status_code == 409
        assert api.post("/", json={}, ok_statuses={409}, into=Session) == Session("s-1")
        with pytest.raises(httpx2.HTTPStatusError) as caught:
            api.post("/", json={}, idempotency_key=True)
    assert caught.value.response.status_code == 409
    assert server.count == 3


@pytest.mark.parametrize("status", [302, 304, 400, 401, 403, 404, 422, 501])
def test_a_permanent_status_raises_httpx2s_error_without_retries(mode: Mode, server: FaultServer, status: int) -> None:
    server.script(Answer(status, {"location": "/elsewhere"}))
    with client(mode, server.url) as api, pytest.raises(httpx2.HTTPStatusError) as caught:
        api.get("/")
    assert caught.value.response.status_code == status
    assert server.count == 1


@pytest.mark.req("H-4")
def test_a_truncated_response_is_retried(mode: Mode, server: FaultServer) -> None:
    server.script(Answer(body=b'{"id": "s-1"}', trouble="cut"), "half", SESSION)
    with client(mode, server.url) as api:
        assert api.get("/", into=Session).id == "s-1"
    assert server.count == 3


@pytest.mark.req("R-6")
def test_retry_after_is_honoured_or_reported(mode: Mode, server: FaultServer) -> None:
    server.script(Answer(429, {"retry-after": "3"}), Answer(503, {"retry-after": "3000"}))
    with client(mode, server.url) as api, instant() as clock, pytest.raises(httpx2.HTTPStatusError) as caught:
        api.get("/")
    assert clock.slept == [3]
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.reason, ended.attempts) == ("retry_after", 2)
    assert ended.retry_at is not None


@pytest.mark.req("C-9")
def test_each_client_has_its_own_budget(mode: Mode, server: FaultServer) -> None:
    server.script(503)
    reasons = set()
    with client(mode, server.url, retry=RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)) as api, instant():
        for _ in range(40):
            with pytest.raises(httpx2.HTTPStatusError) as caught:
                api.get("/")
            reasons.add(getattr(outcome(caught.value), "reason", None))
    assert reasons == {"attempts", "budget"}
    assert server.count < 40 * 2


@pytest.mark.req("C-12")
def test_an_open_breaker_sends_nothing(mode: Mode, server: FaultServer) -> None:
    server.script(503)
    layer = retry(RetryPolicy.disabled(), breaker=f"http-{mode}-{server.port}", budget=Budget())
    with client(mode, server.url, retry=layer) as api:
        for _ in range(20):
            with pytest.raises(httpx2.HTTPStatusError):
                api.get("/")
        with pytest.raises(errors.BreakerOpen):
            api.get("/")
    assert server.count == 20


@pytest.mark.req("C-7")
def test_an_outer_retry_does_not_repeat_spent_retries(mode: Mode, server: FaultServer) -> None:
    server.script(503)
    with client(mode, server.url) as api, pytest.raises(httpx2.HTTPStatusError) as caught:
        retry(QUICK).call(retry(QUICK)(lambda: api.get("/")))
    assert server.count == 3
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.layer == f"GET 127.0.0.1:{server.port}"


def test_faults_can_be_injected_by_client_and_by_operation(mode: Mode, server: FaultServer) -> None:
    with client(mode, server.url) as api:
        with inject(api.client, httpx2.ReadTimeout("late"), ConnectionError) as ordered:
            api.get("/")
        assert (ordered.calls, server.count) == (3, 1)
        with inject("session.get", TimeoutError) as ordered:
            api.get("/", operation="session.get")
            api.get("/")
        assert (ordered.calls, server.count) == (2, 3)


def test_a_key_is_derived_from_surrounding_work(mode: Mode, server: FaultServer) -> None:
    with client(mode, server.url) as api:

        @retry(QUICK, key="billing:{user}:{order}:charge:v1")
        def charge(user: str, order: str) -> None:
            api.post("/charge", json={"order": order, "cents": 5})
            api.post("/charge", json={"cents": 7, "order": order})
            api.post("/charge", json={"order": order, "cents": 5}, operation="again")
            api.post("/receipt", json={"order": order, "cents": 5})
            api.get("/charge")

        charge("ann", "o-1")
        charge("ann", "o-1")
        charge("ünal", "o-1")
    keys = [seen.headers.get("idempotency-key") for seen in server.requests]
    assert keys[:5] == keys[5:10], "the same in every run of the same work"
    assert len(set(keys[:4])) == 4, "another for another request"
    assert keys[4] is None, "reading needs none"
    assert all(key is not None and key.startswith("billing:ann:o-1:charge.") for key in keys[:4])
    assert keys[10] is not None
    assert keys[10].startswith("billing:%C3%BCnal:o-1:charge.post.")


@pytest.mark.req("H-3")
def test_a_post_inside_keyed_work_is_retried(mode: Mode, server: FaultServer) -> None:
    server.script("reset", 200)
    with client(mode, server.url) as api:
        retry(QUICK, key=Key("a", "b", "c", "d")).call(api.post, "/", json={})
    first, second = server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_a_refused_connection_raises_connect_error_with_a_note(mode: Mode) -> None:
    with refused() as url, client(mode, url) as api, pytest.raises(httpx2.ConnectError) as caught:
        api.get("/")
    assert any("gave up on GET 127.0.0.1" in note for note in caught.value.__notes__)


def test_a_copy_shares_connections_and_does_not_close_them(mode: Mode, server: FaultServer) -> None:
    with client(mode, server.url) as api:
        api.get("/")
        copy = api.using(user="ann", headers={"x-a": "1"}, retry=RetryPolicy.disabled())
        copy.get("/")
        copy.close()
        api.get("/")
        assert server.connections == 1
        server.script(503)
        with pytest.raises(httpx2.HTTPStatusError):
            copy.get("/")
        assert server.count == 4
        api.close()
        with pytest.raises(RuntimeError, match="is closed"):
            copy.get("/")


def test_a_closed_client_can_be_entered_again() -> None:
    with FaultServer() as server:
        api = http.Client(server.url)
        for _ in range(2):
            with api:
                api.get("/")
        api.close()
        assert (server.count, server.connections) == (2, 2)


def test_a_users_client_is_not_closed() -> None:
    with FaultServer(Answer(headers={"set-cookie": "a=1"}), 200) as server, httpx2.Client(headers={"x-mine": "1"}) as mine:
        with http.Client(server.url, client=mine) as api:
            api.get("/")
            api.get("/")
        assert mine.get(server.url).status_code == 200
        assert [seen.headers["x-mine"] for seen in server.requests] == ["1"] * 3
        assert server.requests[1].headers["cookie"] == "a=1"
        assert server.connections == 1


@pytest.mark.req("H-2", "J-2")
def test_a_huge_request_id_does_not_fail_outgoing_calls(mode: Mode, server: FaultServer) -> None:
    with correlate(request_id="r" * 70_000), client(mode, server.url) as api:
        assert api.get("/").status_code == 200
    assert len(server.requests[0].headers["x-request-id"]) == 256
