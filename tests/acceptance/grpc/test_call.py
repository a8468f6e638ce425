"""`redrive.grpc.retry` and the interceptors, against real servers, sync and aio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from redrive import Retry, RetryPolicy, deadline, outcome
from redrive import retry as engine_retry
from redrive.errors import AttemptTimeout
from redrive.grpc import AsyncInterceptor, Interceptor, channel_options, retry
from redrive.testing import GrpcAnswer, GrpcFaultServer
from tests.acceptance.grpc.server import SEND, aio_channel, plain_channel

pytestmark = [pytest.mark.req("G-2"), pytest.mark.req("G-8")]
Call = Callable[..., Any]
QUICK = RetryPolicy(3, 0.01, 0.02, 0)
A = channel_options(RetryPolicy(5, 0.01, 0.02, 0))


def plain(server: GrpcFaultServer, rpc: Retry, options: Any = (), timeout: float | None = 60) -> Any:
    with plain_channel(server, options) as channel:
        method: Any = channel.unary_unary(SEND)
        return rpc.call(method, b"x", timeout=timeout)


def aio(server: GrpcFaultServer, rpc: Retry, options: Any = (), timeout: float | None = 60) -> Any:
    async def run() -> Any:
        async with aio_channel(server, options) as channel:
            method: Any = channel.unary_unary(SEND)
            return await rpc.acall(method, b"x", timeout=timeout)

    return asyncio.run(run())


def intercept_calls(server: GrpcFaultServer, rpc: Retry, options: Any = (), timeout: float | None = 60) -> Any:
    with plain_channel(server, options) as channel:
        method: Any = grpc.intercept_channel(channel, Interceptor(rpc)).unary_unary(SEND)
        return method(b"x", timeout=timeout)


def aio_intercepted(server: GrpcFaultServer, rpc: Retry, options: Any = (), timeout: float | None = 60) -> Any:
    async def run() -> Any:
        async with aio_channel(server, options, interceptors=[AsyncInterceptor(rpc)]) as channel:
            method: Any = channel.unary_unary(SEND)
            return await method(b"x", timeout=timeout)

    return asyncio.run(run())


everywhere = pytest.mark.parametrize("call", [plain, aio, intercept_calls, aio_intercepted])
interceptors = pytest.mark.parametrize("call", [intercept_calls, aio_intercepted])


@everywhere
@pytest.mark.parametrize("code", ["INTERNAL", "DEADLINE_EXCEEDED", "UNAVAILABLE"])
def test_a_transient_code_is_retried(call: Call, code: str) -> None:
    with GrpcFaultServer(code, code, GrpcAnswer(message=b"fine")) as server:
        assert call(server, retry(QUICK)) == b"fine"
        assert server.count == 3


@everywhere
def test_spent_retries_raise_the_last_error(call: Call) -> None:
    with GrpcFaultServer("INTERNAL") as server:
        with pytest.raises(grpc.RpcError) as caught:
            call(server, retry(QUICK))
        assert server.count == 3
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.layer) == (3, "attempts", SEND.strip("/")), "named by its method"
    assert caught.value.code() is grpc.StatusCode.INTERNAL


@everywhere
@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"])
def test_a_permanent_code_is_not_retried(call: Call, code: str) -> None:
    with GrpcFaultServer(code) as server:
        with pytest.raises(grpc.RpcError):
            call(server, retry(QUICK))
        assert server.count == 1


@everywhere
def test_an_expired_deadline_is_retried(call: Call) -> None:
    with GrpcFaultServer(GrpcAnswer(delay=60), GrpcAnswer(message=b"in time")) as server:
        assert call(server, retry(QUICK, behind=A), A, timeout=1) == b"in time"
        assert server.count == 2


@everywhere
@pytest.mark.req("G-7")
def test_codes_of_the_channel_are_left_to_it(call: Call) -> None:
    with GrpcFaultServer("UNAVAILABLE") as server:
        with pytest.raises(grpc.RpcError):
            call(server, retry(QUICK, behind=A), A)
        assert server.count == 5, "the channel's, and no more"
    with GrpcFaultServer("INTERNAL") as server:
        with pytest.raises(grpc.RpcError):
            call(server, retry(QUICK, behind=A), A)
        assert server.count == 3


@everywhere
def test_pushback_of_the_server_is_honoured(call: Call) -> None:
    with GrpcFaultServer(GrpcAnswer("INTERNAL", pushback=0.25), "OK") as server:
        call(server, retry(QUICK))
        assert server.waits[0] >= 0.24
    with GrpcFaultServer(GrpcAnswer("INTERNAL", pushback="-1"), "OK") as server:
        with pytest.raises(grpc.RpcError):
            call(server, retry(QUICK))
        assert server.count == 1


@everywhere
def test_an_outer_retry_does_not_multiply(call: Call) -> None:
    outer = engine_retry(RetryPolicy(3, 0, 0, 0), attempt_timeout=None)
    with GrpcFaultServer("INTERNAL") as server:
        with pytest.raises(grpc.RpcError):
            outer.call(call, server, retry(QUICK))
        assert server.count == 3


# ---- Interceptors only


@interceptors
def test_a_call_without_a_timeout_gets_the_attempts_timeout(call: Call) -> None:
    with GrpcFaultServer(GrpcAnswer(delay=5), "OK") as server:
        call(server, retry(QUICK, attempt_timeout=1), timeout=None)
        left = [one.remaining for one in server.calls]
        assert len(left) == 2
        assert all(seconds is not None and seconds <= 1.05 for seconds in left)


@interceptors
def test_a_surrounding_deadline_is_kept(call: Call) -> None:
    with GrpcFaultServer(GrpcAnswer(delay=5)) as server:
        with deadline(0.3), pytest.raises((grpc.RpcError, AttemptTimeout)):
            call(server, retry(QUICK), timeout=30)
        assert server.calls[0].remaining is not None
        assert server.calls[0].remaining <= 0.35


@interceptors
def test_metadata_has_the_attempt_and_the_key(call: Call) -> None:
    with GrpcFaultServer("INTERNAL", "INTERNAL", "OK") as server:
        call(server, retry(QUICK).using(key="shop:ann:o-1:receipt:v1"))
        assert [one.metadata.get("x-redrive-attempt") for one in server.calls] == [None, "2", "3"]
        assert {one.metadata.get("idempotency-key") for one in server.calls} == {"shop:ann:o-1:receipt:v1"}


@interceptors
def test_a_key_that_does_not_fit_a_header_does_not_fail_the_call(call: Call) -> None:
    with GrpcFaultServer("OK") as server:
        call(server, retry(QUICK).using(key=f"shop:zoë:{'o' * 70_000}:receipt:v1"))
        call(server, retry(QUICK).using(key="shop:zoë:o-1:receipt:v1"))
        first, second = (str(one.metadata["idempotency-key"]) for one in server.calls)
        assert (len(first), second) == (64, "shop:zo%C3%AB:o-1:receipt:v1")


def test_metadata_and_the_rest_of_the_call_are_kept() -> None:
    with GrpcFaultServer("INTERNAL", "OK") as server, plain_channel(server) as channel:
        method: Any = grpc.intercept_channel(channel, Interceptor(retry(QUICK))).unary_unary(SEND)
        answer, call = method.with_call(b"x", timeout=60, metadata=(("own", "1"),))
        assert (answer, call.code()) == (b"", grpc.StatusCode.OK)
        assert [one.metadata.get("own") for one in server.calls] == ["1", "1"]


def test_metadata_of_an_aio_call() -> None:
    async def run(server: GrpcFaultServer) -> None:
        async with aio_channel(server, interceptors=[AsyncInterceptor(retry(QUICK))]) as channel:
            method: Any = channel.unary_unary(SEND)
            call = method(b"x", timeout=60, metadata=grpc.aio.Metadata(("own", "1")))
            assert await call == b""
            assert await call.code() is grpc.StatusCode.OK

    with GrpcFaultServer("INTERNAL", "OK") as server:
        asyncio.run(run(server))
        assert [one.metadata.get("own") for one in server.calls] == ["1", "1"]


def test_a_future_is_called_once_and_does_not_block() -> None:
    with GrpcFaultServer(GrpcAnswer("INTERNAL", delay=0.3)) as server, plain_channel(server) as channel:
        method: Any = grpc.intercept_channel(channel, Interceptor(retry(QUICK))).unary_unary(SEND)
        future = method.future(b"x", timeout=60)
        assert not future.done()
        assert future.exception().code() is grpc.StatusCode.INTERNAL
        assert server.count == 1


def test_a_cancelled_aio_call_is_not_retried() -> None:
    async def run(server: GrpcFaultServer) -> None:
        async with aio_channel(server, interceptors=[AsyncInterceptor(retry(QUICK))]) as channel:
            method: Any = channel.unary_unary(SEND)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await method(b"x", timeout=60)
            await asyncio.sleep(0.2)

    with GrpcFaultServer(GrpcAnswer(delay=3)) as server:
        asyncio.run(run(server))
        assert server.count == 1


@interceptors
def test_an_interceptor_works_without_a_retry_argument(call: Call) -> None:
    with GrpcFaultServer("INTERNAL", "OK") as server:
        call(server, None)
        assert server.count == 2
