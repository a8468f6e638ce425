"""The incident: 92 concurrent calls, the first batch of 50 with a late response, the next past its deadline. 25 times faster."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import grpc
import pytest

from redrive.batch import SendBuffer
from redrive.grpc import channel_options
from redrive.testing import GrpcAnswer, GrpcCall, GrpcFaultServer
from tests.acceptance.grpc.server import SEND, aio_channel, aio_serving, items, threads_serving

pytestmark = pytest.mark.req("G-6")
CALLERS = 92
LATE, DEADLINE = 17 / 25, 30 / 25


def services_provider(slow: int) -> Any:
    """A server with a late first response, then responses past the deadline, then a recovery."""
    seen: list[int] = []

    def answer(call: GrpcCall) -> GrpcAnswer:
        seen.append(len(items(call)))
        if len(seen) == 1:
            return GrpcAnswer(message=b"true", delay=LATE)
        return GrpcAnswer(message=b"true", delay=4 if len(seen) <= 1 + slow else 0)

    return answer


async def storm(server: GrpcFaultServer, buffer_options: dict[str, Any]) -> tuple[list[BaseException | None], SendBuffer[int]]:
    options = channel_options()
    async with aio_channel(server, options) as channel:
        method: Any = channel.unary_unary(SEND)

        async def send(batch: list[int]) -> bool:
            return bool(json.loads(await method(json.dumps(batch).encode(), timeout=DEADLINE)))

        async with SendBuffer(send, behind=options, **buffer_options) as buffer:
            sent = [asyncio.create_task(buffer.send(number)) for number in range(CALLERS)]
            return await asyncio.gather(*sent, return_exceptions=True), buffer


@pytest.mark.parametrize("serving", [aio_serving, threads_serving])
@pytest.mark.parametrize("slow", [1, 2])
def test_all_92_succeed(serving: Any, slow: int) -> None:
    async def run() -> None:
        async with serving(services_provider(slow)) as server:
            found, buffer = await storm(server, {})
            assert found == [None] * CALLERS
            assert sorted(map(len, map(items, server.calls))) == sorted([50] + [42] * (1 + slow))
            arrived = Counter(item for call in server.calls for item in items(call))
            assert set(arrived) == set(range(CALLERS)), "every one arrived"
            assert server.count == 2 + slow
            assert (buffer.stats.accepted, buffer.stats.batches) == (CALLERS, 2)

    asyncio.run(run())


def test_without_retries_the_second_batch_fails() -> None:
    """Without retries, the 42 calls of the second batch are lost."""
    from redrive import RetryPolicy

    async def run() -> None:
        async with aio_serving(services_provider(1)) as server:
            found, buffer = await storm(server, {"retry": RetryPolicy.disabled()})
            lost = [error for error in found if isinstance(error, grpc.RpcError)]
            assert len(lost) == 42
            assert {error.code() for error in lost} == {grpc.StatusCode.DEADLINE_EXCEEDED}
            assert server.count == 2
            assert buffer.stats.failed == 42

    asyncio.run(run())
