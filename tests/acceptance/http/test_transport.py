"""The transport in clients of httpx and httpx2, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import httpx
import httpx2
import pytest

from redrive import Key, RetryPolicy, http, outcome, retry
from redrive.testing import Answer, FaultServer, inject
from tests.acceptance.http.both import QUICK

FAST = retry(QUICK)
Send: TypeAlias = Callable[..., Any]


def _plain(library: Any, options: dict[str, Any], method: str, url: str, request: dict[str, Any]) -> Any:
    with library.Client(**options) as client:
        return client.request(method, url, **request)


async def _later(library: Any, options: dict[str, Any], method: str, url: str, request: dict[str, Any]) -> Any:
    async with library.AsyncClient(**options) as client:
        return await client.request(method, url, **request)


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    return {"httpx": httpx, "httpx2": httpx2}[request.param]


@pytest.fixture(params=["sync", "async"])
def send(library: Any, request: pytest.FixtureRequest) -> Send:
    """Send a request through a client with our transport."""

    def plain(method: str, url: str, /, transport: Any = None, **options: Any) -> Any:
        with_ours = {"transport": transport or http.Transport(retry=FAST)}
        if request.param == "sync":
            return _plain(library, with_ours, method, url, options)
        return asyncio.run(_later(library, with_ours, method, url, options))

    return plain


@pytest.mark.req("H-1")
def test_faults_are_retried(library: Any, send: Send, server: FaultServer) -> None:
    server.script(503, "reset", Answer(201, {"x-own": "1"}, b"here"))
    response = send("GET", server.url)
    assert isinstance(response, library.Response)
    assert (response.status_code, response.text, response.headers["x-own"]) == (201, "here", "1")
    assert [seen.headers["x-attempt"] for seen in server.requests] == ["1", "2", "3"]
    assert len({seen.headers["x-request-id"] for seen in server.requests}) == 1
    assert "redrive" not in response.extensions


@pytest.mark.req("H-1")
def test_the_last_failed_response_is_returned(send: Send, server: FaultServer) -> None:
    server.script(503, 503, Answer(503, {"content-type": "text/plain"}, b"overloaded"))
    response = send("GET", server.url)
    assert (response.status_code, response.text) == (503, "overloaded")
    assert server.count == 3
    assert response.extensions["redrive"].reason == "attempts"
    assert server.connections == 1, "what was read to its end is used again"


@pytest.mark.req("H-1")
def test_errors_are_the_librarys_own(library: Any, send: Send, server: FaultServer) -> None:
    server.script("close")
    with pytest.raises(library.RemoteProtocolError) as caught:
        send("GET", server.url)
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.layer) == (3, f"GET 127.0.0.1:{server.port}")
    assert caught.value.request.url == server.url


@pytest.mark.req("H-3")
def test_post_and_patch_are_retried_with_a_key_only(send: Send, server: FaultServer) -> None:
    server.script(503)
    counts = []
    for method, options in [("POST", {}), ("POST", {"headers": {"Idempotency-Key": "k"}}), ("PUT", {}), ("PATCH", {})]:
        before = server.count
        assert send(method, server.url, json={}, **options).status_code == 503
        counts.append(server.count - before)
    assert counts == [1, 3, 3, 1]


@pytest.mark.req("H-3")
def test_a_key_is_derived_from_surrounding_work(send: Send, server: FaultServer) -> None:
    server.script(503, 200)
    retry(QUICK, key=Key("a", "b", "c", "d")).call(send, "POST", server.url, json={"n": 1})
    first, second = (seen.headers["idempotency-key"] for seen in server.requests)
    assert first == second
    assert first.startswith("a:b:c:d.post.")


@pytest.mark.req("H-4")
@pytest.mark.parametrize("kind", ["generator", "list", "file"])
def test_a_stream_is_sent_once(server: FaultServer, kind: str, tmp_path: Any) -> None:
    def generator() -> Iterator[bytes]:
        yield b"body"

    server.script(503)
    path = tmp_path / "body"
    path.write_bytes(b"body")
    with httpx2.Client(transport=http.Transport(retry=FAST)) as client, path.open("rb") as file:
        content: Any = {"generator": generator(), "list": [b"body"], "file": file}[kind]
        assert client.put(server.url, content=content).status_code == 503
    assert [seen.body for seen in server.requests] == [b"body"]


@pytest.mark.req("C-7")
def test_an_outer_retry_does_not_repeat_spent_retries(send: Send, server: FaultServer) -> None:
    server.script(503)

    @retry(QUICK)
    def fetch() -> object:
        return send("GET", server.url).raise_for_status()

    with pytest.raises((httpx.HTTPStatusError, httpx2.HTTPStatusError)) as caught:
        fetch()
    assert server.count == 3, "an answer says too that retries were spent on it"
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "nested"


@pytest.mark.req("C-7")
def test_our_client_with_our_transport_is_one_layer(server: FaultServer) -> None:
    server.script(503)
    with httpx2.Client(transport=http.Transport(retry=FAST)) as mine:
        with pytest.raises(httpx2.HTTPStatusError):
            http.Client(server.url, client=mine, retry=FAST).get("/")
        assert server.count == 3
        server.script("reset")
        with pytest.raises(httpx2.ReadError):
            http.Client(server.url, client=mine, retry=FAST).get("/")
        assert server.count == 6


def test_redirects_are_left_to_the_client(send: Send, server: FaultServer) -> None:
    server.script(503, Answer(302, {"location": "/there"}))
    server.script(503, 200, path="/there")
    with httpx2.Client(transport=http.Transport(retry=FAST), follow_redirects=True) as client:
        assert client.get(server.url).status_code == 200
    assert [seen.path for seen in server.requests] == ["/", "/", "/there", "/there"]


def test_a_request_can_be_sent_again_with_its_own_timeouts(server: FaultServer) -> None:
    with httpx2.Client(transport=http.Transport(retry=retry(attempt_timeout=1)), timeout=7) as client:
        request = client.build_request("GET", server.url)
        for _ in range(2):
            client.send(request)
            assert set(request.extensions["timeout"].values()) == {7}


def test_a_custom_inner_transport_is_used(library: Any, server: FaultServer) -> None:
    with library.Client(transport=http.Transport(library.HTTPTransport(), retry=FAST)) as client:
        assert client.get(server.url).status_code == 200
    answers = iter([500, 200])
    mock = library.MockTransport(lambda _: library.Response(next(answers)))
    with library.Client(transport=http.Transport(mock, retry=FAST)) as client:
        assert client.get("http://nowhere").status_code == 200


def test_faults_can_be_injected_into_a_transport(server: FaultServer) -> None:
    transport = http.Transport(retry=FAST)
    with httpx.Client(transport=transport) as client, inject(transport, httpx.ReadTimeout("late")) as ordered:
        client.get(server.url)
    assert (ordered.calls, server.count) == (2, 1)


def test_misuse_is_rejected(server: FaultServer) -> None:
    with pytest.raises(TypeError, match="one of httpx or httpx2, not str"):
        http.Transport("http://x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="retry= must be a RetryPolicy"):
        http.Transport(retry=3)  # type: ignore[arg-type]
    client = httpx2.Client(transport=http.Transport(httpx2.AsyncHTTPTransport()))
    with pytest.raises(TypeError, match="does not fit this client"):
        client.get(server.url)
    with pytest.raises(TypeError, match="does not fit this client"):
        http.Transport(httpx2.AsyncHTTPTransport()).__enter__()


def test_disabled_retries_send_once(send: Send, server: FaultServer) -> None:
    server.script(503)
    assert send("GET", server.url, http.Transport(retry=RetryPolicy.disabled())).status_code == 503
    assert server.count == 1
