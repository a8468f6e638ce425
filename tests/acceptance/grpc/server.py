"""Scripted sync and aio servers, and channels to them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from redrive.testing import GrpcAnswer, GrpcCall, GrpcFaultServer
from redrive.testing.grpc_server import PUSHBACK

ALONE = ("grpc.use_local_subchannel_pool", 1)
"""Options of a channel that shares no connection with other tests."""
NO_PROXY = ("grpc.enable_http_proxy", 0)
"""Options without a proxy, because the server is local."""
SEND = "/signals.Signals/Send"


class AioServer(GrpcFaultServer):
    """A scripted grpc.aio server in the event loop of the test."""

    async def answer(self, method: str, message: bytes, context: Any) -> bytes:
        metadata = {name: value for name, value in context.invocation_metadata()}  # noqa: C416  # aio has its own metadata class
        answer = self.next_answer(GrpcCall(method, message, metadata, context.time_remaining(), time.monotonic()))
        if answer.delay:
            await asyncio.sleep(min(answer.delay, 3600))
        if answer.pushback is not None:
            said = answer.pushback if isinstance(answer.pushback, str) else str(round(answer.pushback * 1000))
            context.set_trailing_metadata(((PUSHBACK, said),))
        if answer.code != "OK":
            await context.abort(grpc.StatusCode[answer.code], answer.details)
        return answer.message


class _Methods(grpc.GenericRpcHandler):
    def __init__(self, owner: AioServer) -> None:
        self._owner = owner

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method

        async def handle(message: bytes, context: Any) -> bytes:
            return await self._owner.answer(method, message, context)

        return grpc.unary_unary_rpc_method_handler(handle)


@asynccontextmanager
async def aio_serving(*script: Any) -> AsyncIterator[AioServer]:
    owner = AioServer(*script)
    server = grpc.aio.server(handlers=[_Methods(owner)])
    owner.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield owner
    finally:
        await server.stop(None)


@asynccontextmanager
async def threads_serving(*script: Any) -> AsyncIterator[GrpcFaultServer]:
    server = await asyncio.to_thread(GrpcFaultServer(*script).start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.close)


def aio_channel(server: GrpcFaultServer, options: Any = (), **more: Any) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(server.target, options=[*options, ALONE, NO_PROXY], **more)


def plain_channel(server: GrpcFaultServer, options: Any = ()) -> grpc.Channel:
    return grpc.insecure_channel(server.target, options=[*options, ALONE, NO_PROXY])


def items(call: GrpcCall) -> list[Any]:
    """The items of a message."""
    found: list[Any] = json.loads(call.message)
    return found


ACCEPTED = GrpcAnswer(message=b"true")
