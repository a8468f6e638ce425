"""Which requests may be repeated: declared by a request, a client, a transport or a retry."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import httpx2
import pytest

from redrive import http, outcome, retry
from redrive.testing import FaultServer
from tests.acceptance.http.both import QUICK, Mode, client

FAST = retry(QUICK)
pytestmark = pytest.mark.req("H-3")


def count_requests(mode: Mode, server: FaultServer, options: dict[str, Any], method: str = "POST", **request: Any) -> int:
    """Return the number of requests that one call sends to a failing server."""
    before = server.count
    with client(mode, server.url, retry=FAST, **options) as api, pytest.raises(httpx2.HTTPStatusError):
        api.request(method, "/", json={}, **request)
    return server.count - before


def test_a_call_can_declare_that_it_is_idempotent(mode: Mode, server: FaultServer) -> None:
    server.script(503)
    assert count_requests(mode, server, {}) == 1
    assert count_requests(mode, server, {}, idempotent=True) == 3
    assert count_requests(mode, server, {}, method="PATCH", idempotent=True) == 3
    assert count_requests(mode, server, {}, method="PUT", idempotent=False) == 1
    assert count_requests(mode, server, {}, idempotent=True, content=None) == 3
    with pytest.raises(TypeError, match="idempotent= must be True, False, or None"):
        count_requests(mode, server, {}, idempotent="yes")
    assert not any("idempotency-key" in seen.headers for seen in server.requests)


def test_a_client_can_declare_its_calls_idempotent(mode: Mode, server: FaultServer) -> None:
    server.script(503)
    assert count_requests(mode, server, {"idempotent": True}) == 3
    assert count_requests(mode, server, {"idempotent": True}, idempotent=False) == 1
    assert count_requests(mode, server, {"idempotent": False}, method="PUT") == 1
    with client(mode, server.url, retry=FAST) as api, pytest.raises(httpx2.HTTPStatusError) as caught:
        before = server.count
        api.using(idempotent=True).post("/")
    assert server.count - before == 3
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "attempts"


def test_a_retry_can_declare_calls_idempotent(mode: Mode, server: FaultServer) -> None:
    server.script(503)
    assert count_requests(mode, server, {}) == 1
    with client(mode, server.url, retry=retry(QUICK, idempotent=True)) as api, pytest.raises(httpx2.HTTPStatusError):
        before = server.count
        api.post("/", json={})
    assert server.count - before == 3


def test_a_stream_is_never_repeated(mode: Mode, server: FaultServer) -> None:
    server.script(503)
    with client(mode, server.url, retry=FAST) as api, pytest.raises(httpx2.HTTPStatusError):
        api.post("/", content=AsyncParts() if mode == "async" else iter([b"x"]), idempotent=True)
    assert server.count == 1


class AsyncParts:
    async def __aiter__(self) -> Any:
        yield b"x"


def test_a_client_can_generate_keys(mode: Mode, server: FaultServer) -> None:
    server.script(503)
    assert count_requests(mode, server, {"idempotency_key": True}) == 3
    assert count_requests(mode, server, {"idempotency_key": True}) == 3
    keys = [seen.headers["idempotency-key"] for seen in server.requests]
    assert len(set(keys[:3])) == len(set(keys[3:])) == 1
    assert keys[0] != keys[3], "one key for each call"
    assert count_requests(mode, server, {"idempotency_key": True}, idempotency_key="mine") == 3
    assert server.requests[-1].headers["idempotency-key"] == "mine"
    assert count_requests(mode, server, {"idempotency_key": True}, method="PUT") == 3
    assert "idempotency-key" not in server.requests[-1].headers
    with pytest.raises(TypeError, match="idempotency_key= of a client must be True"):
        http.Client(server.url, idempotency_key="k")  # type: ignore[arg-type]


def through(library: Any, is_async: bool, transport: http.Transport, url: str, **options: Any) -> Any:
    async def later() -> Any:
        async with library.AsyncClient(transport=transport) as inner:
            return await inner.post(url, **options)

    if is_async:
        return asyncio.run(later())
    with library.Client(transport=transport) as inner:
        return inner.post(url, **options)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize(
    ("options", "extension", "count", "keyed"),
    [
        ({}, None, 1, False),
        ({"idempotent": True}, None, 3, False),
        ({"idempotent": True}, {"idempotent": False}, 1, False),
        ({}, {"idempotent": True}, 3, False),
        ({}, {"idempotency_key": True}, 3, True),
        ({}, {"idempotency_key": "k-1"}, 3, True),
        ({"idempotency_key": True}, None, 3, True),
        ({"idempotency_key": True}, {"idempotency_key": False}, 1, False),
    ],
)
def test_a_transport_and_its_requests_can_declare_idempotency(
    library: Any, is_async: bool, server: FaultServer, options: Any, extension: Any, count: int, keyed: bool
) -> None:
    server.script(503)
    transport = http.Transport(retry=FAST, **options)
    more = {} if extension is None else {"extensions": {"redrive": extension}}
    assert through(library, is_async, transport, server.url, json={}, **more).status_code == 503
    assert server.count == count
    assert len({seen.headers.get("idempotency-key") for seen in server.requests}) == 1
    assert ("idempotency-key" in server.requests[0].headers) is keyed


def test_an_unknown_option_in_the_extension_is_rejected(server: FaultServer) -> None:
    with pytest.raises(TypeError, match=r"extensions\['redrive'\] must be a mapping with idempotent and idempotency_key"):
        through(httpx2, False, http.Transport(), server.url, extensions={"redrive": {"idempotant": True}})
    assert server.count == 0
