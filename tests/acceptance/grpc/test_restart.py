"""The server is killed and restarted: every sender gets a response, and every item arrives."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from redrive.batch import SendBuffer
from redrive.grpc import channel_options
from tests.acceptance.grpc.server import NO_PROXY, SEND

pytestmark = [pytest.mark.req("G-4"), pytest.mark.req("G-7")]
ITEMS = 2_000


@asynccontextmanager
async def receiver(port: int, file: Path) -> AsyncIterator[tuple[int, Any]]:
    command = [sys.executable, "-m", "tests.acceptance.grpc.receiver", str(port), str(file)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline()), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def test_senders_survive_a_server_restart(tmp_path: Path) -> None:
    file = tmp_path / "arrived"
    asyncio.run(killed_and_started_again(file))
    arrived = [number for line in file.read_text().splitlines() for number in json.loads(line)]
    assert set(arrived) == set(range(ITEMS))


async def killed_and_started_again(file: Path) -> None:
    options = channel_options()
    accepted = 0

    async def sender(buffer: SendBuffer[int], numbers: range) -> None:
        nonlocal accepted
        for number in numbers:
            await buffer.send(number)
            accepted += 1

    async with receiver(0, file) as (port, first):
        quick = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[*options, *quick, NO_PROXY]) as channel:
            method: Any = channel.unary_unary(SEND)

            async def send(batch: list[int]) -> bool:
                return bool(json.loads(await method(json.dumps(batch).encode(), timeout=60)))

            async with SendBuffer(send, behind=options, max_batch_size=20, flush_interval=0.005) as buffer:
                crowd = [asyncio.create_task(sender(buffer, range(place, ITEMS, 40))) for place in range(40)]
                while accepted < ITEMS // 4:  # noqa: ASYNC110  # no single task could signal it
                    await asyncio.sleep(0.001)
                first.kill()
                await first.wait()
                assert accepted < ITEMS, "it was in the middle"
                async with asyncio.timeout(60), receiver(port, file):
                    await asyncio.gather(*crowd)
    stats = buffer.stats
    assert (accepted, stats.accepted, stats.failed) == (ITEMS, ITEMS, 0)
