"""GrpcFaultServer follows its script and records its calls."""

from __future__ import annotations

import threading
import time
from typing import Any

import grpc
import pytest

from redrive.testing import GrpcAnswer, GrpcCall, GrpcFaultServer


def call(server: GrpcFaultServer, message: bytes = b"x", timeout: float = 60) -> Any:
    with grpc.insecure_channel(server.target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        method: Any = channel.unary_unary("/shop.Orders/Get")
        return method(message, timeout=timeout, metadata=(("own", "1"),))


def code(server: GrpcFaultServer, timeout: float = 60) -> str:
    try:
        call(server, timeout=timeout)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def test_the_last_step_of_a_script_repeats() -> None:
    with GrpcFaultServer("UNAVAILABLE", GrpcAnswer("NOT_FOUND"), "OK") as server:
        assert [code(server) for _ in range(4)] == ["UNAVAILABLE", "NOT_FOUND", "OK", "OK"]
        assert server.count == 4
        server.script("INTERNAL")
        assert code(server) == "INTERNAL"
        assert len(server.waits) == 4


def test_calls_are_recorded() -> None:
    with GrpcFaultServer(GrpcAnswer(message=b"an order")) as server:
        assert call(server, b"o-1") == b"an order"
    [seen] = server.calls
    assert (seen.method, seen.message, seen.metadata["own"]) == ("/shop.Orders/Get", b"o-1", "1")
    assert seen.remaining is not None
    assert 0 < seen.remaining <= 60.1


def test_a_function_of_the_call() -> None:
    def answer(call: GrpcCall) -> GrpcAnswer | str:
        return "NOT_FOUND" if call.message == b"o-2" else GrpcAnswer(message=call.message)

    with GrpcFaultServer(answer) as server:
        assert call(server, b"o-1") == b"o-1"
        with pytest.raises(grpc.RpcError):
            call(server, b"o-2")


def test_delayed_and_missing_responses() -> None:
    with GrpcFaultServer(GrpcAnswer(delay=float("inf"))) as server:
        assert code(server, timeout=0.1) == "DEADLINE_EXCEEDED"


def test_pushback() -> None:
    with GrpcFaultServer(GrpcAnswer("UNAVAILABLE", pushback=0.25)) as server:
        with pytest.raises(grpc.RpcError) as caught:
            call(server)
        trailers: Any = caught.value.trailing_metadata()
        assert dict(trailers)["grpc-retry-pushback-ms"] == "250"


def test_a_restart_keeps_the_port() -> None:
    server = GrpcFaultServer().start()
    port = server.port
    server.stop()
    assert code(server) == "UNAVAILABLE"
    server.start()
    assert server.port == port
    assert code(server) == "OK"
    with pytest.raises(RuntimeError, match="started already"):
        server.start()
    server.close()
    server.close()


def test_close_leaves_no_thread() -> None:
    with GrpcFaultServer() as server:
        call(server)
    deadline = time.monotonic() + 60
    while any("GrpcFaultServer" in thread.name for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [thread for thread in threading.enumerate() if "GrpcFaultServer" in thread.name]
