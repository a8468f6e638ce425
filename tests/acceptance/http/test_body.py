"""Response bodies: bounded in memory, streamed where possible, and no connection left open."""

from __future__ import annotations

import asyncio
import gzip
import io
import tracemalloc
from typing import Any

import httpx
import httpx2
import pytest

from redrive import http, retry
from redrive.errors import Rejected
from redrive.testing import Answer, FaultServer
from tests.acceptance.http.both import QUICK, Mode, client

FAST = retry(QUICK)
MIB = 1024 * 1024
BOMB = gzip.compress(bytes(64 * MIB))
PACKED = {"content-encoding": "gzip"}


@pytest.mark.req("H-4")
def test_a_body_that_is_too_large_is_not_retried(mode: Mode, server: FaultServer) -> None:
    server.script(Answer(200, body=bytes(5000)))
    with client(mode, server.url, max_body=4999) as api:
        with pytest.raises(httpx2.DecodingError, match=r"larger than max_body=4999 bytes; pass a larger max_body="):
            api.get("/")
        assert server.count == 1, "the next response would be as large"
        server.script(Answer(200, body=bytes(4999)))
        assert len(api.get("/").content) == 4999
    with client(mode, server.url, max_body=None) as api:
        server.script(Answer(200, body=bytes(5000)))
        assert len(api.get("/").content) == 5000
    with pytest.raises(ValueError, match="max_body must be at least 1"):
        http.Client(server.url, max_body=0)


@pytest.mark.req("H-4")
def test_the_limit_applies_after_decompression(mode: Mode, server: FaultServer) -> None:
    assert len(BOMB) < 100_000
    server.script(Answer(200, PACKED, BOMB))
    with client(mode, server.url, max_body=MIB) as api:
        tracemalloc.start()
        try:
            with pytest.raises(httpx2.DecodingError, match="max_body=1048576"):
                api.get("/")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 16 * MIB
        server.script(Answer(200, PACKED, gzip.compress(b"x" * 1000)))
        assert api.get("/").content == b"x" * 1000


@pytest.mark.req("H-4")
def test_the_default_limit_stops_an_endless_body(mode: Mode, server: FaultServer) -> None:
    assert http.Client(server.url)._defaults.max_body == 100 * MIB
    server.script(Answer(200, PACKED, gzip.compress(bytes(101 * MIB))))
    with client(mode, server.url) as api, pytest.raises(httpx2.DecodingError, match="max_body=104857600"):
        api.get("/")


@pytest.mark.req("H-4")
def test_an_error_response_is_cut_off_and_stays_an_error(mode: Mode, server: FaultServer) -> None:
    server.script(Answer(503, PACKED, BOMB), Answer(404, PACKED, BOMB))
    with client(mode, server.url) as api, pytest.raises(httpx2.HTTPStatusError) as caught:
        api.get("/")
    assert (caught.value.response.status_code, len(caught.value.response.content)) == (404, MIB)
    assert server.count == 2


# ---- The transport


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    return {"httpx": httpx, "httpx2": httpx2}[request.param]


@pytest.fixture(params=["sync", "async"])
def send(library: Any, request: pytest.FixtureRequest) -> Any:
    """Send through a client with a pool of one connection. A leaked one would block the next request."""

    async def later(transport: Any, calls: list[tuple[str, str, dict[str, Any]]]) -> list[Any]:
        inner = library.AsyncHTTPTransport(limits=library.Limits(max_connections=1))
        async with library.AsyncClient(transport=http.Transport(inner, **transport), timeout=5) as api:
            return [await api.request(method, url, **options) for method, url, options in calls]

    def plain(transport: Any, calls: list[tuple[str, str, dict[str, Any]]]) -> list[Any]:
        inner = library.HTTPTransport(limits=library.Limits(max_connections=1))
        with library.Client(transport=http.Transport(inner, **transport), timeout=5) as api:
            return [api.request(method, url, **options) for method, url, options in calls]

    return plain if request.param == "sync" else lambda *given: asyncio.run(later(*given))


def not_ready(response: Any) -> bool:
    return bool(response.status_code == 202)


@pytest.mark.req("H-1")
@pytest.mark.parametrize("size", [10, 5 * MIB])
def test_rejected_responses_free_their_connections(send: Any, server: FaultServer, size: int) -> None:
    pending = Answer(202, body=bytes(size))
    server.script(pending, pending, Answer(200, body=b"done"), pending, pending, Answer(200, body=b"done"))
    found = send({"retry": retry(QUICK, reject=not_ready)}, [("GET", server.url, {})] * 2)
    assert [response.text for response in found] == ["done", "done"]
    assert server.count == 6


@pytest.mark.req("H-1")
@pytest.mark.parametrize("size", [10, 5 * MIB])
def test_the_last_rejected_response_is_returned(send: Any, server: FaultServer, size: int) -> None:
    server.script(Answer(202, {"x-n": "1"}, b"a"), Answer(202, {"x-n": "2"}, b"b"), Answer(202, {"x-n": "3"}, bytes(size)))
    (response,) = send({"retry": retry(QUICK, reject=not_ready)}, [("GET", server.url, {})])
    assert (response.status_code, response.headers["x-n"], len(response.content)) == (202, "3", size)
    assert response.extensions["redrive"].reason == "attempts"


def test_a_reject_that_raises_leaves_no_connection_open(send: Any, server: FaultServer) -> None:
    def broken(response: Any) -> bool:
        raise LookupError("a bug")

    server.script(Answer(200, body=bytes(5 * MIB)))
    for _ in range(2):
        with pytest.raises(LookupError):
            send({"retry": retry(QUICK, reject=broken)}, [("GET", server.url, {})])


def test_a_reject_may_read_the_body_in_sync_code(library: Any, server: FaultServer) -> None:
    server.script(Answer(200, body=b"not yet"), Answer(200, body=b"not yet"), Answer(200, body=b"here"))

    def unfinished(response: Any) -> bool:
        return bool(response.read() == b"not yet")

    transport = http.Transport(retry=retry(QUICK, reject=unfinished))
    with library.Client(transport=transport) as api:
        assert api.get(server.url).text == "here"
        server.script(Answer(200, body=b"not yet"))
        assert api.get(server.url).text == "not yet"


@pytest.mark.req("H-4")
def test_the_body_of_an_error_stays_a_stream(library: Any, server: FaultServer) -> None:
    body = bytes(range(256)) * (5 * MIB // 256)
    for status, count in ((404, 1), (503, 3)):
        server.script(Answer(status, body=body))
        before = server.count
        with library.Client(transport=http.Transport(retry=FAST)) as api:
            tracemalloc.start()
            try:
                with api.stream("GET", server.url) as response:
                    _, peak = tracemalloc.get_traced_memory()
                    assert not response.is_stream_consumed
                    assert b"".join(response.iter_bytes()) == body
            finally:
                tracemalloc.stop()
        assert peak < 2 * MIB, "the body was not read before it was asked for"
        assert server.count - before == count


@pytest.mark.req("H-4")
def test_the_long_body_of_an_error_stays_a_stream_in_async_code(library: Any, server: FaultServer) -> None:
    body = bytes(range(256)) * (MIB // 256)

    async def run() -> bytes:
        async with library.AsyncClient(transport=http.Transport(retry=FAST)) as api, api.stream("GET", server.url) as response:
            return b"".join([part async for part in response.aiter_bytes()])

    server.script(Answer(503, body=body))
    assert asyncio.run(run()) == body
    assert server.count == 3


def test_long_bodies_of_failed_attempts_free_their_connections(send: Any, server: FaultServer) -> None:
    server.script(Answer(503, body=bytes(MIB)), Answer(503, body=bytes(MIB)), Answer(200, body=b"fine"))
    (response,) = send({"retry": FAST}, [("GET", server.url, {})])
    assert (response.text, server.count) == ("fine", 3)


def test_a_rejection_from_inside_is_not_taken_for_a_response() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        raise Rejected("by the inner transport", result="no response")

    transport = http.Transport(httpx2.MockTransport(handler), retry=FAST)
    with httpx2.Client(transport=transport) as api, pytest.raises(Rejected, match="by the inner transport"):
        api.get("http://nowhere")


class OwnRequest(httpx.Request):
    pass


class OwnRequest2(httpx2.Request):
    pass


def test_a_request_of_a_subclass_is_sent(server: FaultServer) -> None:
    server.script(503, 200, 503, 200)
    with httpx.Client(transport=http.Transport(retry=FAST)) as api:
        assert api.send(OwnRequest("GET", server.url)).status_code == 200
    with httpx2.Client(transport=http.Transport(retry=FAST)) as api2:
        assert api2.send(OwnRequest2("GET", server.url)).status_code == 200


class Pipe(io.RawIOBase):
    """A file that cannot be rewound."""

    def __init__(self) -> None:
        self._rest = b"file"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


@pytest.mark.req("H-4")
@pytest.mark.parametrize("kind", ["bytes", "file", "pipe"])
def test_a_form_is_repeated_if_its_files_can_be_rewound(send: Any, server: FaultServer, kind: str) -> None:
    file: Any = {"bytes": b"file", "file": io.BytesIO(b"file"), "pipe": Pipe()}[kind]
    server.script(503, 503, 200)
    form = {"data": {"name": "x"}, "files": {"upload": ("a.txt", file)}}
    (response,) = send({"retry": FAST}, [("PUT", server.url, form)])
    if kind == "pipe":
        assert (response.status_code, server.count) == (503, 1)
    else:
        assert (response.status_code, server.count) == (200, 3)
        assert len({seen.body for seen in server.requests}) == 1
    assert all(b"file" in seen.body for seen in server.requests)
