"""Three retry layers: independent ones turn one request into 60, ours retry each code in one layer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest

from redrive import RetryPolicy
from redrive.batch import SendBuffer
from redrive.grpc import AsyncInterceptor, channel_options, path, retry
from redrive.testing import GrpcAnswer, GrpcFaultServer
from tests.acceptance.grpc.server import ACCEPTED, SEND, aio_channel, aio_serving, threads_serving

pytestmark = pytest.mark.req("G-7")
CHANNEL, CALL, BATCH = RetryPolicy(5, 0.01, 0.01, 0), RetryPolicy(3, 0.01, 0.01, 0), RetryPolicy(4, 0.01, 0.01, 0)
NAIVE = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED")
SERVERS = pytest.mark.parametrize("serving", [aio_serving, threads_serving])


def naive(times: int, call: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """A hand-written retry loop."""

    async def loop() -> Any:
        for attempt in range(1, times + 1):
            try:
                return await call()
            except grpc.RpcError:
                if attempt == times:
                    raise
        return None

    return loop


async def by_hand(server: GrpcFaultServer, timeout: float) -> int:
    before = server.count
    async with aio_channel(server, channel_options(CHANNEL, codes=NAIVE)) as channel:
        await channel.channel_ready()
        method: Any = channel.unary_unary(SEND)

        async def call() -> Any:
            return await method(b"[1]", timeout=timeout)

        with pytest.raises(grpc.RpcError):
            await naive(BATCH.max_attempts, naive(CALL.max_attempts, call))()
    return server.count - before


async def by_redrive(server: GrpcFaultServer, timeout: float, *, intercept: bool = False) -> int:
    """Three layers around one call. The middle one is redundant."""
    before = server.count
    options = channel_options(CHANNEL)
    rpc = retry(CALL, behind=options)
    async with aio_channel(server, options, interceptors=[AsyncInterceptor(rpc)] if intercept else None) as channel:
        await channel.channel_ready()
        method: Any = channel.unary_unary(SEND)

        async def send(batch: list[int]) -> bool:
            message = json.dumps(batch).encode()
            answer = await (method(message, timeout=timeout) if intercept else rpc.acall(method, message, timeout=timeout))
            return bool(json.loads(answer))

        async with SendBuffer(send, retry=BATCH, behind=options, max_batch_size=1) as buffer:
            with pytest.raises(grpc.RpcError):
                await buffer.send(1)
    return server.count - before


@SERVERS
@pytest.mark.parametrize(
    ("answer", "timeout", "multiplied", "ours"),
    [
        (GrpcAnswer("UNAVAILABLE"), 5, 60, 5),
        (GrpcAnswer("DEADLINE_EXCEEDED"), 5, 60, 4),
        (GrpcAnswer("INTERNAL"), 5, 12, 4),
        (GrpcAnswer("RESOURCE_EXHAUSTED"), 5, 60, 5),
        (GrpcAnswer(delay=3600), 0.4, 12, 4),
        (GrpcAnswer("NOT_FOUND"), 5, 12, 1),
    ],
    ids=lambda value: getattr(value, "code", None),
)
def test_independent_layers_multiply_and_ours_do_not(
    serving: Any, answer: GrpcAnswer, timeout: float, multiplied: int, ours: int
) -> None:
    async def run() -> None:
        async with serving(answer) as server:
            assert await count_requests(partial(by_hand, server), timeout, multiplied) == multiplied
            assert await count_requests(partial(by_redrive, server), timeout, ours) == ours
            assert await count_requests(partial(by_redrive, server, intercept=True), timeout, ours) == ours

    asyncio.run(run())


async def count_requests(requests: Callable[[float], Awaitable[int]], timeout: float, expected: int) -> int:
    """Return the number of requests that the server saw.

    On a busy machine, a timeout may expire before the server sees the request. Repeat with a longer
    timeout then.
    """
    found = await requests(timeout)
    for longer in (8 * timeout, 32 * timeout):
        if found >= expected:
            break
        found = await requests(longer)
    return found


def test_codes_pass_on_if_the_channel_does_not_retry() -> None:
    async def run() -> None:
        options = channel_options(RetryPolicy.disabled())
        async with aio_serving("UNAVAILABLE") as server, aio_channel(server, options) as channel:
            method: Any = channel.unary_unary(SEND)
            rpc = retry(CALL, behind=options)
            with pytest.raises(grpc.RpcError):
                await rpc.acall(method, b"", timeout=60)
            assert server.count == 3

            async def send(batch: list[int]) -> None:
                await rpc.acall(method, b"", timeout=60)

            async with SendBuffer(send, retry=BATCH, behind=options, max_batch_size=1) as buffer:
                with pytest.raises(grpc.RpcError):
                    await buffer.send(1)
            assert server.count == 3 + 4

    asyncio.run(run())


def test_a_channel_can_retry_some_services_only() -> None:
    """The options of the method's path decide."""

    async def run() -> None:
        options = channel_options(CHANNEL, services=["signals.Signals"])
        async with aio_serving("UNAVAILABLE") as server, aio_channel(server, options) as channel:
            for name, attempts in ((SEND, 5), ("/other.Other/Get", 3)):
                before = server.count
                method: Any = channel.unary_unary(name)
                with pytest.raises(grpc.RpcError):
                    await retry(CALL, behind=path(options, name)).acall(method, b"", timeout=60)
                assert server.count - before == attempts

    asyncio.run(run())


def test_a_batch_recovers() -> None:
    async def run() -> None:
        async with aio_serving("UNAVAILABLE", "INTERNAL", "UNAVAILABLE", ACCEPTED) as server:
            options = channel_options(CHANNEL)
            async with aio_channel(server, options) as channel:
                method: Any = channel.unary_unary(SEND)

                async def send(batch: list[int]) -> bool:
                    return bool(json.loads(await method(json.dumps(batch).encode(), timeout=60)))

                async with SendBuffer(send, behind=options, max_batch_size=3) as buffer:
                    await asyncio.gather(*map(buffer.send, (1, 2, 3)))
            assert server.count == 4, "one and its retry by the channel, twice"

    asyncio.run(run())
