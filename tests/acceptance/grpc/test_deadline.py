"""An expired deadline is the error that gRPC's callers catch, regardless of the layer that ended the call."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from redrive import RetryPolicy, deadline, outcome
from redrive.batch import SendBuffer
from redrive.errors import AttemptTimeout
from redrive.grpc import AsyncInterceptor, retry
from redrive.testing import GrpcAnswer, GrpcFaultServer
from tests.acceptance.grpc.server import SEND, aio_channel

ONCE_MORE = RetryPolicy(2, 0.01, 0.02, 0)
RPC = retry(ONCE_MORE, attempt_timeout=0.2)
pytestmark = pytest.mark.req("G-2")


async def call_method(channel: Any) -> Any:
    return await RPC.acall(channel.unary_unary(SEND), b"x")


async def in_a_block(channel: Any) -> Any:
    async for attempt in RPC.attempts():
        async with attempt:
            await channel.unary_unary(SEND)(b"x")


async def call_decorated(channel: Any) -> Any:
    @RPC
    async def send() -> Any:
        return await channel.unary_unary(SEND)(b"x")

    return await send()


async def send_buffered(channel: Any) -> Any:
    async def send(items: list[bytes]) -> None:
        await channel.unary_unary(SEND)(items[0])

    async with SendBuffer(send, attempt_timeout=0.2, retry=ONCE_MORE) as buffer:
        return await buffer.send(b"x")


async def too_late(channel: Any) -> Any:
    with deadline(0.01):
        await asyncio.sleep(0.02)
        return await RPC.acall(channel.unary_unary(SEND), b"x")


def catch_error(call: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
    async def run(server: GrpcFaultServer) -> Any:
        async with aio_channel(server, **options) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call(channel)
            return error.value

    with GrpcFaultServer(GrpcAnswer(delay=60)) as server:
        return asyncio.run(run(server))


@pytest.mark.parametrize("call", [call_method, in_a_block, call_decorated, send_buffered, too_late])
def test_an_expired_attempt_is_also_deadline_exceeded(call: Callable[[Any], Awaitable[Any]]) -> None:
    error = catch_error(call)
    assert issubclass(type(error), AttemptTimeout)
    assert issubclass(type(error), TimeoutError)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert error.details() == str(error)
    ended = outcome(error)
    assert ended is not None
    assert ended.attempts == (0 if call is too_late else 2)


def test_an_expired_intercepted_call_is_deadline_exceeded() -> None:
    async def call(channel: Any) -> Any:
        return await channel.unary_unary(SEND)(b"x")

    error = catch_error(call, interceptors=[AsyncInterceptor(RPC)])
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_the_error_can_be_pickled_with_its_outcome() -> None:
    error = catch_error(call_method)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.code(), copy.details()) == (str(error), error.code(), error.details())
    ended = outcome(copy)
    assert ended is not None
    assert ended.attempts == 2
