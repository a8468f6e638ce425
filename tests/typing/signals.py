"""An asyncio client that sends signals of many tasks in few calls."""

import asyncio
from typing import Any, Protocol, assert_type

import grpc
import grpc.aio

import redrive.grpc
from redrive import App, Retry, RetryPolicy
from redrive.batch import BufferStats, SendBuffer


class Stub(Protocol):  # what protoc generates
    async def SendSignals(self, request: Any, *, timeout: float) -> Any: ...  # noqa: N802  # as protoc does

    async def GetModule(self, request: Any, *, timeout: float) -> str: ...  # noqa: N802


def make_stub(channel: grpc.aio.Channel) -> Stub:
    raise NotImplementedError


async def main() -> None:
    options = redrive.grpc.channel_options()  # layer A: the channel's own retries
    async with grpc.aio.insecure_channel("provider:50051", options=options) as channel:
        stub = make_stub(channel)
        rpc = redrive.grpc.retry(behind=options)  # layer B: only codes that A does not own
        assert_type(rpc, Retry)

        module = await rpc.acall(stub.GetModule, {"id": "m1"}, timeout=30)
        assert_type(module, str)

        async def send(signals: list[str]) -> bool:
            reply = await stub.SendSignals({"signals": signals}, timeout=30)
            return bool(reply.success)

        async with SendBuffer(send, behind=options) as buffer:  # layer C: batches of 50, every 0.1 s
            assert_type(buffer, SendBuffer[str])
            async with asyncio.TaskGroup() as tasks:
                for n in range(92):
                    tasks.create_task(buffer.send(f"{module} started {n}"))
            await buffer.send_all(f"{n}" for n in range(3))
            await buffer.send(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            assert_type(buffer.stats, BufferStats)


# --- other sends, and what they may say
async def nothing(batch: list[int]) -> None: ...


async def each(batch: list[int]) -> list[bool | Exception]:
    return [ValueError(), True]


async def text(batch: list[int]) -> str:
    return "fine"


def plain(batch: list[int]) -> bool:
    return True


assert_type(SendBuffer(nothing), SendBuffer[int])
assert_type(SendBuffer(each, retry=RetryPolicy(), in_flight=1), SendBuffer[int])
assert_type(SendBuffer.from_env(nothing, {}, max_waiting=5, codes=["INTERNAL"]), SendBuffer[int])
SendBuffer(plain)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
SendBuffer(nothing, max_batch=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
SendBuffer(nothing, size=len)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
SendBuffer(text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# --- where items go
app = App()


@app.command("signals.send")
def later(signal: int) -> None: ...


@app.command("signals.two")
def two(signal: int, other: str) -> None: ...


SendBuffer(nothing, spill=later)
SendBuffer(nothing, spill=two)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
SendBuffer(nothing, spill=print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# --- channels
redrive.grpc.channel_options(RetryPolicy(3), services=["shop.Orders"], codes=["UNAVAILABLE"])
redrive.grpc.channel_options(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
redrive.grpc.retry(behind=redrive.grpc.path(redrive.grpc.channel_options(), "/shop.Orders/Get"))
grpc.intercept_channel(grpc.insecure_channel("x"), redrive.grpc.Interceptor(redrive.grpc.retry()))
grpc.aio.insecure_channel("x", interceptors=[redrive.grpc.AsyncInterceptor(redrive.grpc.retry())])

asyncio.run(main())
