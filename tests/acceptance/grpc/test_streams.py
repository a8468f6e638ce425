"""Streaming methods with retries, against a real server that stores its requests, sync and aio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest

from redrive import RetryPolicy, outcome
from redrive.errors import AttemptTimeout
from redrive.grpc import AsyncInterceptor, Interceptor, retry
from tests.acceptance.grpc.server import ALONE, NO_PROXY

pytestmark = pytest.mark.req("G-8")
QUICK = RetryPolicy(3, 0.01, 0.02, 0)
RPC = retry(QUICK)
COLLECT, LIST, CHAT = "/streams.Streams/Collect", "/streams.Streams/List", "/streams.Streams/Chat"
OPTIONS = [ALONE, NO_PROXY]


class Server(grpc.GenericRpcHandler):
    """Fails the first `failures` calls with INTERNAL after reading all requests. Stores the requests."""

    def __init__(self, failures: int, after: int = 0, delay: float = 0.0) -> None:
        self.failures, self.after, self.delay = failures, after, delay
        self.received: list[list[bytes]] = []
        self.closing = threading.Event()
        self.target = ""

    def service(self, details: Any) -> Any:
        if details.method == COLLECT:
            return grpc.stream_unary_rpc_method_handler(self.collect)
        if details.method == LIST:
            return grpc.unary_stream_rpc_method_handler(lambda request, context: self.stream([request], context))
        return grpc.stream_stream_rpc_method_handler(self.stream)

    def collect(self, requests: Any, context: Any) -> bytes:
        self.admit(requests, context)
        return b"".join(self.received[-1])

    def stream(self, requests: Any, context: Any) -> Iterator[bytes]:
        failing = len(self.received) < self.failures
        if failing and self.after:
            self.received.append(list(requests))
            yield from self.received[-1][: self.after]
            context.abort(grpc.StatusCode.INTERNAL, "cut")
        self.admit(requests, context)
        yield from self.received[-1]

    def admit(self, requests: Any, context: Any) -> None:
        self.received.append(list(requests))
        if self.delay:
            self.closing.wait(self.delay)
        if len(self.received) <= self.failures:
            context.abort(grpc.StatusCode.INTERNAL, "not yet")


@contextmanager
def serving(failures: int, after: int = 0, delay: float = 0.0) -> Iterator[Server]:
    handler = Server(failures, after, delay)
    pool = ThreadPoolExecutor(8)
    server = grpc.server(pool, handlers=[handler])
    handler.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield handler
    finally:
        handler.closing.set()
        server.stop(None).wait()
        pool.shutdown()


def sync_call(server: Server, kind: str, method: str, requests: Any, rpc: Any = RPC) -> Any:
    with grpc.insecure_channel(server.target, OPTIONS) as channel:
        made = rpc.call(getattr(channel, kind)(method), requests, timeout=60)
        return list(made) if kind.endswith("_stream") else made


def aio_call(server: Server, kind: str, method: str, requests: Any, rpc: Any = RPC) -> Any:
    async def run() -> Any:
        async with grpc.aio.insecure_channel(server.target, OPTIONS) as channel:
            made = await rpc.acall(getattr(channel, kind)(method), requests, timeout=60)
            return [message async for message in made] if kind.endswith("_stream") else made

    return asyncio.run(run())


both = pytest.mark.parametrize("call", [sync_call, aio_call])
Call = Callable[..., Any]


def requests() -> Iterator[bytes]:
    yield from (b"a", b"b")


@both
@pytest.mark.parametrize("given", [[b"a", b"b"], (b"a", b"b"), requests], ids=["list", "tuple", "function"])
def test_every_attempt_sends_the_whole_request_stream(call: Call, given: Any) -> None:
    with serving(2) as server:
        assert call(server, "stream_unary", COLLECT, given) == b"ab"
        assert server.received == [[b"a", b"b"]] * 3


def test_an_async_function_of_requests_is_called_for_every_attempt() -> None:
    async def later() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    with serving(1) as server:
        assert aio_call(server, "stream_unary", COLLECT, later) == b"ab"
        assert server.received == [[b"a", b"b"]] * 2


@both
@pytest.mark.parametrize("kind", ["stream_unary", "stream_stream"])
def test_an_iterator_of_requests_is_rejected_before_sending(call: Call, kind: str) -> None:
    with serving(1) as server:
        with pytest.raises(TypeError, match="streams.Streams/.*cannot be replayed.*function that returns a new iterator"):
            call(server, kind, COLLECT if kind == "stream_unary" else CHAT, requests())
        assert server.received == []


@both
def test_an_iterator_is_sent_once_without_retries(call: Call) -> None:
    with serving(0) as server:
        assert call(server, "stream_unary", COLLECT, requests(), retry(RetryPolicy.disabled())) == b"ab"


def test_requests_by_keyword_and_in_a_partial() -> None:
    with serving(2) as server, grpc.insecure_channel(server.target, OPTIONS) as channel:
        method: Any = channel.stream_unary(COLLECT)
        assert RPC.call(partial(method, timeout=60), request_iterator=requests) == b"ab"
        with pytest.raises(TypeError, match="cannot be replayed"):
            RPC.call(partial(method, requests()), timeout=60)
        answer, call = RPC(method.with_call)([b"c"], timeout=60)
        assert (answer, call.code()) == (b"c", grpc.StatusCode.OK)


@both
@pytest.mark.parametrize("kind", ["unary_stream", "stream_stream"])
def test_the_opening_of_a_response_stream_is_retried(call: Call, kind: str) -> None:
    given: Any = b"ab" if kind == "unary_stream" else [b"a", b"b"]
    with serving(2) as server:
        assert call(server, kind, LIST if kind == "unary_stream" else CHAT, given) == (
            [b"ab"] if given == b"ab" else [b"a", b"b"]
        )
        assert len(server.received) == 3


@both
def test_an_empty_response_stream_is_empty(call: Call) -> None:
    with serving(0) as server:
        assert call(server, "stream_stream", CHAT, []) == []


@both
def test_a_response_stream_that_breaks_later_is_not_repeated(call: Call) -> None:
    with serving(1, after=1) as server:
        with pytest.raises(grpc.RpcError) as caught:
            call(server, "stream_stream", CHAT, [b"a", b"b"])
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert len(server.received) == 1, "messages that the caller has seen cannot be taken back"


@both
def test_a_response_stream_that_never_opens_raises_its_own_error(call: Call) -> None:
    with serving(9) as server:
        with pytest.raises(grpc.RpcError) as caught:
            call(server, "unary_stream", LIST, b"x")
        ended = outcome(caught.value)
        assert ended is not None
        assert (ended.attempts, ended.reason, len(server.received)) == (3, "attempts", 3)


def test_an_opened_stream_has_the_methods_of_the_call() -> None:
    async def run(server: Server) -> None:
        async with grpc.aio.insecure_channel(server.target, OPTIONS) as channel:
            method: Any = channel.unary_stream(LIST)
            stream = await RPC.acall(method, b"x", timeout=60)
            assert [await stream.read(), await stream.read()] == [b"x", grpc.aio.EOF]
            assert await stream.code() is grpc.StatusCode.OK

    with serving(1) as server:
        with grpc.insecure_channel(server.target, OPTIONS) as channel:
            method: Any = channel.unary_stream(LIST)
            stream: Any = RPC.call(method, b"x", timeout=60)
            assert list(stream) == [b"x"]
            assert stream.code() is grpc.StatusCode.OK
        asyncio.run(run(server))


def test_misuse_of_a_streaming_method_is_rejected() -> None:
    async def run(server: Server) -> None:
        async with grpc.aio.insecure_channel(server.target, OPTIONS) as channel:
            method: Any = channel.unary_stream(LIST)
            with pytest.raises(TypeError, match="acall"):
                RPC.call(method, b"x")

    with serving(0) as server, grpc.insecure_channel(server.target, OPTIONS) as channel:
        methods: list[Any] = [channel.unary_unary(LIST), channel.stream_unary(COLLECT)]
        for method in methods:
            with pytest.raises(TypeError, match=r"future\(\) returns before the call can fail"):
                RPC.call(method.future, [b"x"])
        asyncio.run(run(server))
        assert server.received == []


def test_interceptors_do_not_change_streams() -> None:
    async def run(server: Server) -> None:
        async with grpc.aio.insecure_channel(server.target, OPTIONS, interceptors=[AsyncInterceptor(RPC)]) as channel:
            method: Any = channel.stream_unary(COLLECT)
            with pytest.raises(grpc.aio.AioRpcError):
                await method(requests(), timeout=60)

    with serving(2) as server:
        with grpc.insecure_channel(server.target, OPTIONS) as bare:
            channel = grpc.intercept_channel(bare, Interceptor(RPC))
            method: Any = channel.stream_unary(COLLECT)
            with pytest.raises(grpc.RpcError):
                method(requests(), timeout=60)
        asyncio.run(run(server))
        assert server.received == [[b"a", b"b"]] * 2, "one attempt each, and nothing lost"


def test_a_stream_that_opens_too_late_is_cancelled() -> None:
    rpc = retry(RetryPolicy(2, 0.01, 0.02, 0), attempt_timeout=0.2)

    async def run(server: Server) -> None:
        async with grpc.aio.insecure_channel(server.target, OPTIONS) as channel:
            method: Any = channel.unary_stream(LIST)
            with pytest.raises(AttemptTimeout) as caught:
                await rpc.acall(method, b"x")
            late: Any = caught.value
            assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    with serving(0, delay=60) as server:
        asyncio.run(run(server))
        assert len(server.received) == 2
