"""Which requests the clients send again, and which only once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest

from redrive import outcome, retry
from redrive.testing import Answer, FaultServer, inject, instant
from tests.acceptance.http.both import QUICK, Mode, client


@pytest.mark.req("H-3")
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_idempotent_methods_are_retried(mode: Mode, server: FaultServer, method: str) -> None:
    server.script("reset", 503, 200)
    with client(mode, server.url) as api:
        assert api.request(method, "/").status_code == 200
    assert server.count == 3


@pytest.mark.req("H-3")
@pytest.mark.parametrize("method", ["POST", "PATCH", "LOCK"])
@pytest.mark.parametrize("trouble", [503, "reset", "close", Answer(body=b"x", trouble="cut")])
def test_a_post_that_may_have_succeeded_is_not_repeated(mode: Mode, server: FaultServer, method: str, trouble: Any) -> None:
    server.script(trouble, 200)
    with client(mode, server.url) as api, pytest.raises(httpx2.HTTPError) as caught:
        api.request(method, "/", json={})
    assert server.count == 1
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "not_idempotent"


@pytest.mark.req("H-3")
@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("given", [{"idempotency_key": True}, {"headers": {"Idempotency-Key": "k-1"}}])
def test_a_post_with_a_key_is_retried(mode: Mode, server: FaultServer, method: str, given: dict[str, Any]) -> None:
    server.script("reset", Answer(body=b"x", trouble="cut"), 200)
    with client(mode, server.url) as api:
        api.request(method, "/", json={}, **given)
        api.request(method, "/", json={}, **given)
    first, second, third, other = (seen.headers["idempotency-key"] for seen in server.requests)
    assert first == second == third
    assert (first == other) == ("headers" in given)


@pytest.mark.req("H-3")
def test_a_conflict_for_a_running_key_is_retried(mode: Mode, server: FaultServer) -> None:
    """The first attempt timed out while the server was running. Its middleware returns 409 with Retry-After."""
    server.script(Answer(409, {"retry-after": "0"}), 200)
    with client(mode, server.url) as api:
        assert api.post("/", json={}, idempotency_key="k-1").status_code == 200
    assert server.count == 2
    for given, conflict in (({"idempotency_key": "k-2"}, Answer(409)), ({}, Answer(409, {"retry-after": "0"}))):
        server.script(conflict, 200)
        with client(mode, server.url) as api, pytest.raises(httpx2.HTTPStatusError):
            api.post("/", json={}, **given)
    assert server.count == 4


@pytest.mark.req("H-3", "C-10")
def test_a_request_that_was_never_sent_is_retried_without_a_key(mode: Mode, server: FaultServer) -> None:
    with client(mode, server.url) as api, server.down(), instant() as clock, pytest.raises(httpx2.ConnectError) as caught:
        api.post("/", json={})
    assert clock.slept == [0.001, 0.002]
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (3, "attempts")


@pytest.mark.req("H-3")
def test_idempotent_false_prevents_retries(mode: Mode, server: FaultServer) -> None:
    server.script(503)
    with (
        client(mode, server.url, retry=retry(QUICK, idempotent=False)) as api,
        pytest.raises(httpx2.HTTPStatusError),
    ):
        api.get("/")
    assert server.count == 1


@pytest.mark.req("H-4")
def test_a_stream_is_sent_once_and_text_is_repeated(mode: Mode, server: FaultServer) -> None:
    def plain() -> Iterator[bytes]:
        yield b"one"
        yield b"two"

    async def later() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    server.script(503, 200)
    stream = plain() if mode == "sync" else later()
    with client(mode, server.url) as api:
        with pytest.raises(httpx2.HTTPStatusError):
            api.request("PUT", "/", content=stream)
        assert [seen.body for seen in server.requests] == [b"onetwo"]
        server.script(503, 200)
        api.request("PUT", "/", content="whole")
    assert [seen.body for seen in server.requests][1:] == [b"whole", b"whole"]


@pytest.mark.req("H-4", "C-10")
def test_an_unread_stream_is_sent_when_the_server_is_back(mode: Mode, server: FaultServer) -> None:
    def begun() -> Iterator[bytes]:
        yield b"whole"

    async def later() -> AsyncIterator[bytes]:
        yield b"whole"

    with client(mode, server.url) as api, inject(api.client, httpx2.ConnectError("refused"), httpx2.PoolTimeout("full")):
        api.post("/", content=begun() if mode == "sync" else later())
    assert [seen.body for seen in server.requests] == [b"whole"]
