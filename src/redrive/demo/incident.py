"""The incident: 92 signals at once, the first batch answered late, the next one not in time. Tried once, and with Redrive."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # before it is imported: its own words would fall between ours

import grpc
import grpc.aio

from redrive import RetryPolicy
from redrive.batch import SendBuffer
from redrive.grpc import channel_options, retry
from redrive.testing import GrpcAnswer, GrpcCall, GrpcFaultServer

from .scene import Figures, Scene
from .stage import Stage

CALLERS, BATCH = 92, 50
SCALE = 30
"""So many times faster than it was."""
LATE, DEADLINE = 17 / SCALE, 30 / SCALE
SEND = "/signals.Signals/Send"
NO_PROXY = ("grpc.enable_http_proxy", 0)
"""Past any proxy: the server is on this machine."""
QUICK = RetryPolicy(5, 0.01, 0.02, 0)


class Storm:
    """92 callers, and a server that is slow at first."""

    def __init__(self) -> None:
        self.server = GrpcFaultServer(self._answer)
        self.answered = 0

    def _answer(self, call: GrpcCall) -> GrpcAnswer:
        late = {1: LATE, 2: 2 * DEADLINE}
        return GrpcAnswer(message=b"true", delay=late.get(self.server.count, 0.0))

    async def blow(self, policy: RetryPolicy | None) -> None:
        """Everybody sends at once."""
        options = channel_options()
        async with grpc.aio.insecure_channel(self.server.target, options=[*options, NO_PROXY]) as channel:
            method: Any = channel.unary_unary(SEND)

            async def send(batch: list[int]) -> bool:
                return bool(json.loads(await method(json.dumps(batch).encode(), timeout=DEADLINE)))

            async def caller(number: int) -> None:
                try:
                    await buffer.send(number)
                    self.answered += 1
                except grpc.RpcError:
                    pass  # lost, which the count shows

            async with SendBuffer(send, behind=options, retry=policy, max_batch_size=BATCH) as buffer:
                await asyncio.gather(*map(caller, range(CALLERS)))


def _play(stage: Stage) -> Figures:
    stage.line(
        f"{CALLERS} signals at once. The first response takes 17 s, the second more than 30 s ({SCALE} times faster here)."
    )
    once, ours = Storm(), Storm()
    stage.bar("answered, without retries", lambda: once.answered)
    stage.bar("answered, Redrive", lambda: ours.answered)
    with once.server, ours.server:
        asyncio.run(once.blow(RetryPolicy.disabled()))
        lost = CALLERS - once.answered
        stage.line(f"without retries: {lost} of {CALLERS} are lost to one late response; {once.server.count} requests", "red")
        asyncio.run(ours.blow(None))
        stage.line(f"Redrive: {ours.answered} of {CALLERS} answered; {ours.server.count} requests", "green")
    with GrpcFaultServer("UNAVAILABLE") as server:
        by_hand, by_redrive = asyncio.run(_down(server))
    stage.line(
        f"During an outage, three hand-written layers turn one call into {by_hand} requests, layers of Redrive into {by_redrive}."
    )
    return {
        "callers": CALLERS,
        "answered_once": once.answered,
        "requests_once": once.server.count,
        "answered": ours.answered,
        "requests": ours.server.count,
        "requests_by_hand": by_hand,
        "requests_by_redrive": by_redrive,
    }


async def _down(server: GrpcFaultServer) -> tuple[int, int]:
    """What three layers make of one signal: the channel's retries, ours around the call, and the buffer's."""
    options = channel_options(QUICK)
    async with grpc.aio.insecure_channel(server.target, options=[*options, NO_PROXY]) as channel:
        method: Any = channel.unary_unary(SEND)
        for _ in range(4 * 3):  # a loop in a loop
            try:
                await method(b"[0]", timeout=DEADLINE)
            except grpc.RpcError:
                pass  # once more
        by_hand = server.count
        rpc = retry(behind=options)

        async def send(batch: list[int]) -> None:
            await rpc.acall(method, json.dumps(batch).encode(), timeout=DEADLINE)

        async with SendBuffer(send, behind=options, max_batch_size=1) as buffer:
            try:
                await buffer.send(0)
            except grpc.RpcError:
                pass  # it is down
    return by_hand, server.count - by_hand


INCIDENT = Scene(
    "incident",
    "One late response, and no signal is lost",
    _play,
    lambda figures: (
        f"{figures['callers']} signals: {figures['answered_once']} answered without retries, {figures['answered']} by Redrive, "
        f"with {figures['requests']} requests; down: {figures['requests_by_hand']} by hand, "
        f"{figures['requests_by_redrive']} by Redrive"
    ),
    "docs/how-to/calls/send-buffer.md",
)
