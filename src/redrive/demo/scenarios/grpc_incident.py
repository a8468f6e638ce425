"""The scenario of a gRPC incident: 92 signals at once, one late response and one timeout."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when grpcio is imported

import grpc
import grpc.aio

from redrive import RetryPolicy
from redrive.batch import SendBuffer
from redrive.grpc import channel_options, retry
from redrive.testing import GrpcAnswer, GrpcCall, GrpcFaultServer

from .scenario import Display, Figures, Scenario

CALLERS, BATCH_SIZE = 92, 50
SPEED_UP = 30
"""The scenario runs this many times faster than the real incident."""
LATE_SECONDS, DEADLINE_SECONDS = 17 / SPEED_UP, 30 / SPEED_UP
SEND_METHOD = "/signals.Signals/Send"
NO_PROXY = ("grpc.enable_http_proxy", 0)
"""Ignores proxies, because the server is on this machine."""
SHORT_WAITS = RetryPolicy(5, 0.01, 0.02, 0)


class Storm:
    """Many callers at once, and a server whose first two responses are late."""

    def __init__(self) -> None:
        self.server = GrpcFaultServer(self._answer)
        self.answered = 0

    def _answer(self, call: GrpcCall) -> GrpcAnswer:
        delays = {1: LATE_SECONDS, 2: 2 * DEADLINE_SECONDS}
        return GrpcAnswer(message=b"true", delay=delays.get(self.server.count, 0.0))

    async def send_all(self, policy: RetryPolicy | None) -> None:
        """Send one signal from every caller at the same time."""
        options = channel_options()
        async with grpc.aio.insecure_channel(
            self.server.target, options=[*options, NO_PROXY]
        ) as channel:
            method: Any = channel.unary_unary(SEND_METHOD)

            async def send(batch: list[int]) -> bool:
                response = await method(json.dumps(batch).encode(), timeout=DEADLINE_SECONDS)
                return bool(json.loads(response))

            async def call(number: int) -> None:
                with suppress(grpc.RpcError):  # lost; the count shows it
                    await buffer.send(number)
                    self.answered += 1

            async with SendBuffer(
                send, behind=options, retry=policy, max_batch_size=BATCH_SIZE
            ) as buffer:
                await asyncio.gather(*map(call, range(CALLERS)))


def _replay_incident(display: Display) -> Figures:
    display.line(
        f"{CALLERS} signals at once. The first response takes 17 s, the second more than 30 s "
        f"({SPEED_UP} times faster here)."
    )
    once, redrive = Storm(), Storm()
    display.bar("answered, without retries", lambda: once.answered)
    display.bar("answered, Redrive", lambda: redrive.answered)
    with once.server, redrive.server:
        asyncio.run(once.send_all(RetryPolicy.disabled()))
        display.line(
            f"without retries: {CALLERS - once.answered} of {CALLERS} are lost to one late "
            f"response; {once.server.count} requests",
            "red",
        )
        asyncio.run(redrive.send_all(None))
        display.line(
            f"Redrive: {redrive.answered} of {CALLERS} answered; {redrive.server.count} requests",
            "green",
        )
    with GrpcFaultServer("UNAVAILABLE") as server:
        by_hand, by_redrive = asyncio.run(_count_requests_during_outage(server))
    display.line(
        f"During an outage, three hand-written layers turn one call into {by_hand} requests, "
        f"layers of Redrive into {by_redrive}."
    )
    return {
        "callers": CALLERS,
        "answered_once": once.answered,
        "requests_once": once.server.count,
        "answered": redrive.answered,
        "requests": redrive.server.count,
        "requests_by_hand": by_hand,
        "requests_by_redrive": by_redrive,
    }


async def _count_requests_during_outage(server: GrpcFaultServer) -> tuple[int, int]:
    """Send one signal through three layers: channel retries, retries of the call, a buffer.

    Returns:
        The requests with hand-written loops, and with layers of Redrive.
    """
    options = channel_options(SHORT_WAITS)
    async with grpc.aio.insecure_channel(server.target, options=[*options, NO_PROXY]) as channel:
        method: Any = channel.unary_unary(SEND_METHOD)
        for _ in range(4 * 3):  # a loop in a loop
            with suppress(grpc.RpcError):
                await method(b"[0]", timeout=DEADLINE_SECONDS)
        by_hand = server.count
        rpc = retry(behind=options)

        async def send(batch: list[int]) -> None:
            await rpc.acall(method, json.dumps(batch).encode(), timeout=DEADLINE_SECONDS)

        async with SendBuffer(send, behind=options, max_batch_size=1) as buffer:
            with suppress(grpc.RpcError):
                await buffer.send(0)
    return by_hand, server.count - by_hand


GRPC_INCIDENT = Scenario(
    "incident",
    "One late response, and no signal is lost",
    _replay_incident,
    lambda figures: (
        f"{figures['callers']} signals: {figures['answered_once']} answered without retries, "
        f"{figures['answered']} by Redrive, with {figures['requests']} requests; "
        f"down: {figures['requests_by_hand']} by hand, {figures['requests_by_redrive']} by Redrive"
    ),
    "docs/how-to/calls/send-buffer.md",
)
