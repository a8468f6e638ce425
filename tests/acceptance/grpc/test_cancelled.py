"""Senders cancelled at random times, in thousands of rounds: all others get a response, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from redrive import RetryPolicy
from redrive.batch import SendBuffer
from redrive.errors import BufferClosed, Refused
from redrive.testing import GrpcAnswer, GrpcCall
from tests.acceptance.grpc.server import SEND, aio_channel, aio_serving
from tests.unit.batch.buffer.world import clean, rpc_error

pytestmark = pytest.mark.req("G-4")
Send = Callable[[list[int]], Awaitable[Any]]
EXPECTED = (type(None), asyncio.CancelledError, grpc.RpcError, Refused, BufferClosed, ValueError)


async def turns(dice: random.Random, most: int) -> None:
    for _ in range(dice.randrange(most)):
        await asyncio.sleep(0)


async def round_of(dice: random.Random, send: Send, most_turns: int = 12) -> None:
    """Run some senders. Cancel a few, and sometimes close the buffer or cancel its tasks."""
    buffer = SendBuffer(
        send,
        max_batch_size=dice.randint(1, 5),
        flush_interval=dice.choice([0, 0, 0.0005]),
        in_flight=dice.randint(1, 3),
        max_waiting=dice.randint(1, 12),
        retry=RetryPolicy(dice.randint(1, 3), 0, 0, 0),
        drain=dice.choice([None, 60, 0]),
    )
    before = asyncio.all_tasks()
    senders: list[asyncio.Task[None]] = []
    for number in range(dice.randint(1, 16)):
        group = dice.random() < 0.1
        senders.append(asyncio.create_task(buffer.send_all(range(number, number + 5)) if group else buffer.send(number)))
        if dice.random() < 0.3:
            await turns(dice, 4)
    await turns(dice, most_turns)
    for sender in dice.sample(senders, dice.randrange(len(senders) + 1)):
        sender.cancel()
        await turns(dice, 3)
    end = dice.random()
    if end < 0.1:
        for task in asyncio.all_tasks() - before - set(senders):  # its flushes, as at program exit
            task.cancel()
    elif end < 0.3:
        closing = asyncio.create_task(buffer.aclose())
        await turns(dice, most_turns)
        if dice.random() < 0.5:
            closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
    found = await asyncio.wait_for(asyncio.gather(*senders, return_exceptions=True), 60)
    for error in found:
        assert isinstance(error, (*EXPECTED, ExceptionGroup)), error
    await buffer.aclose()
    stats = buffer.stats
    gone = stats.accepted + stats.refused + stats.failed + stats.withdrawn
    assert (stats.waiting, stats.in_flight, stats.entered) == (0, 0, gone)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("seed", range(6))
def test_cancelled_senders_leave_nothing_behind(seed: int) -> None:
    async def rounds() -> None:
        dice = random.Random(seed)

        async def send(batch: list[int]) -> Any:
            await turns(dice, 6)
            chance = dice.random()
            if chance < 0.2:
                raise rpc_error(dice.choice(["UNAVAILABLE", "INTERNAL", "NOT_FOUND"]))
            if chance < 0.25:
                raise ValueError("not gRPC's")
            if chance < 0.3:
                return False
            return [dice.choice([True, False, ValueError("no")]) for _ in batch] if chance < 0.4 else True

        for _ in range(600):
            await round_of(dice, send)

    clean(rounds())


def test_cancelled_senders_leave_nothing_behind_on_a_server() -> None:
    async def rounds() -> None:
        dice = random.Random(9)

        def answer(call: GrpcCall) -> GrpcAnswer:
            chance = dice.random()
            if chance < 0.3:
                return GrpcAnswer(dice.choice(["UNAVAILABLE", "INTERNAL", "NOT_FOUND"]))
            return GrpcAnswer(message=b"true" if chance < 0.9 else b"false", delay=dice.choice([0, 0, 0.002]))

        async with aio_serving(answer) as server, aio_channel(server) as channel:
            method: Any = channel.unary_unary(SEND)

            async def send(batch: list[int]) -> bool:
                return bool(json.loads(await method(json.dumps(batch).encode(), timeout=60)))

            assert await method(b"[]", timeout=60)
            for _ in range(300):
                await one(dice, send)

    async def one(dice: random.Random, send: Send) -> None:
        # Tasks of the server run in the same loop, so count those of the buffer by its stats.
        buffer = SendBuffer(send, max_batch_size=4, flush_interval=0.001, retry=RetryPolicy(3, 0, 0, 0))
        senders = [asyncio.create_task(buffer.send(number)) for number in range(dice.randint(1, 12))]
        await asyncio.sleep(dice.random() * 0.004)
        for sender in dice.sample(senders, dice.randrange(len(senders) + 1)):
            sender.cancel()
        for error in await asyncio.wait_for(asyncio.gather(*senders, return_exceptions=True), 60):
            assert isinstance(error, EXPECTED), error
        await buffer.aclose()
        stats = buffer.stats
        assert stats.entered == stats.accepted + stats.refused + stats.failed + stats.withdrawn

    clean(rounds())
