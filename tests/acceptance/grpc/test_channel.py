"""The channel's own retries on the wire, and the pitfalls of grpcio."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from redrive import RetryPolicy
from redrive.grpc import channel_options
from redrive.testing import GrpcAnswer, GrpcFaultServer
from tests.acceptance.grpc.server import SEND, plain_channel

pytestmark = pytest.mark.req("G-1")
QUICK = RetryPolicy(5, 0.01, 0.02, 0)


def call(server: GrpcFaultServer, options: Any, message: bytes = b"x", timeout: float = 60) -> tuple[str, float]:
    """Return the status of a call and its duration."""
    began = time.monotonic()
    with plain_channel(server, options) as channel:
        method: Any = channel.unary_unary(SEND)
        try:
            method(message, timeout=timeout)
        except grpc.RpcError as error:
            return error.code().name, time.monotonic() - began
    return "OK", time.monotonic() - began


@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED"])
def test_codes_of_the_channel_get_five_attempts(code: str) -> None:
    with GrpcFaultServer(code) as server:
        assert call(server, channel_options(QUICK))[0] == code
        assert server.count == 5
        assert [call.metadata.get("grpc-previous-rpc-attempts") for call in server.calls] == [None, "1", "2", "3", "4"]


@pytest.mark.parametrize("code", ["INTERNAL", "DEADLINE_EXCEEDED", "ABORTED", "NOT_FOUND"])
def test_other_codes_get_one_attempt(code: str) -> None:
    with GrpcFaultServer(code) as server:
        assert call(server, channel_options(QUICK))[0] == code
        assert server.count == 1


def test_default_waits_start_at_a_tenth_of_a_second() -> None:
    with GrpcFaultServer("UNAVAILABLE", "UNAVAILABLE", "OK") as server:
        assert call(server, channel_options())[0] == "OK"
        assert 0.08 <= server.waits[0] < 30
        assert 0.16 <= server.waits[1] < 30


def test_one_attempt_switches_retries_off() -> None:
    with GrpcFaultServer("UNAVAILABLE") as server:
        assert call(server, channel_options(RetryPolicy.disabled()))[0] == "UNAVAILABLE"
        assert server.count == 1


def test_a_client_deadline_is_never_retried_even_if_listed() -> None:
    """This is why the layer around the channel retries DEADLINE_EXCEEDED."""
    options = channel_options(QUICK, codes=["DEADLINE_EXCEEDED"])
    with GrpcFaultServer(GrpcAnswer(delay=60)) as server:
        code, seconds = call(server, options, timeout=0.5)
        assert code == "DEADLINE_EXCEEDED"
        assert seconds < 30
        assert server.count == 1
        server.script("DEADLINE_EXCEEDED")
        call(server, options)
        assert server.count == 6, "one that the server says is"


@pytest.mark.parametrize("base", [0.0, 0.0005, 0.001, 0.005])
def test_waits_too_short_for_grpcio_do_not_hang(base: float) -> None:
    """grpcio 1.72 to 1.85 stalls until the deadline, or beyond, on waits below a millisecond."""
    with GrpcFaultServer("UNAVAILABLE") as server:
        for _ in range(4):
            code, seconds = call(server, channel_options(RetryPolicy(5, base, base, 0)))
            assert code == "UNAVAILABLE"
            assert seconds < 30, "well before the deadline"
        assert server.count == 20


def test_a_call_has_its_whole_deadline() -> None:
    """`methodConfig.timeout` would fire early: the options have none, and the call's own holds."""
    with GrpcFaultServer(GrpcAnswer(delay=0.4)) as server:
        assert call(server, channel_options(), timeout=30)[0] == "OK"
        remaining = server.calls[0].remaining
        assert remaining is not None
        assert 20 < remaining <= 30.1


@pytest.mark.parametrize(("size", "attempts"), [(200_000, 3), (300_000, 3), (3_900_000, 3)])
def test_a_large_batch_is_retried(size: int, attempts: int) -> None:
    with GrpcFaultServer("UNAVAILABLE", "UNAVAILABLE", "OK") as server:
        assert call(server, channel_options(QUICK), b"x" * size)[0] == "OK"
        assert server.count == attempts


def test_a_batch_above_max_batch_bytes_is_not_retried() -> None:
    with GrpcFaultServer("UNAVAILABLE", "OK") as server:
        assert call(server, channel_options(QUICK, max_batch_bytes=500_000), b"x" * 900_000)[0] == "UNAVAILABLE"
        assert server.count == 1


@pytest.mark.req("G-8")
def test_pushback_of_the_server_is_honoured() -> None:
    with GrpcFaultServer(GrpcAnswer("UNAVAILABLE", pushback=0.3), "OK") as server:
        assert call(server, channel_options(QUICK))[0] == "OK"
        assert server.waits[0] >= 0.29
    with GrpcFaultServer(GrpcAnswer("UNAVAILABLE", pushback="-1"), "OK") as server:
        assert call(server, channel_options(QUICK))[0] == "UNAVAILABLE"
        assert server.count == 1


def test_retries_apply_to_configured_services_only() -> None:
    options = channel_options(QUICK, services=["signals.Signals"])
    with GrpcFaultServer("UNAVAILABLE") as server:
        call(server, options)
        assert server.count == 5
        with plain_channel(server, options) as channel:
            method: Any = channel.unary_unary("/other.Service/Send")
            with pytest.raises(grpc.RpcError):
                method(b"", timeout=60)
        assert server.count == 6


def by_hand(**fields: Any) -> list[tuple[str, str]]:
    """Return a hand-written service config, without knowledge of grpcio's limits."""
    policy = {
        "maxAttempts": 3,
        "initialBackoff": "0.01s",
        "maxBackoff": "0.01s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config = {"methodConfig": [{"name": [{}], "retryPolicy": policy | fields}]}
    return [("grpc.service_config", json.dumps(config))]


def test_grpcio_makes_at_most_five_attempts() -> None:
    """grpcio makes five attempts and reports it only in its log."""
    with GrpcFaultServer("UNAVAILABLE") as server:
        call(server, by_hand(maxAttempts=10))
        assert server.count == 5
    with pytest.raises(ValueError, match="5 attempts at most"):
        channel_options(RetryPolicy(10))


@pytest.mark.parametrize("wrong", [{"maxAttempts": 1}, {"retryableStatusCodes": []}, {"initialBackoff": 0.1}])
def test_grpcio_reports_invalid_options_late(wrong: dict[str, Any]) -> None:
    """grpcio accepts an invalid policy, and then fails every call before it reaches the server."""
    with GrpcFaultServer("OK") as server:
        assert call(server, by_hand(**wrong))[0] == "INVALID_ARGUMENT"
        assert server.count == 0
        assert call(server, by_hand())[0] == "OK"
    with pytest.raises(ValueError, match="codes"):
        channel_options(codes=["SOMETHING"])


def test_early_headers_of_the_server_prevent_retries() -> None:
    """The channel considers the call started with the first headers. Only a stream lets the client see them."""
    seen, asked = threading.Event(), []

    def early(_: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        asked.append(1)
        context.send_initial_metadata((("x", "y"),))
        seen.wait(60)
        context.abort(grpc.StatusCode.UNAVAILABLE, "after the headers")

    handler = grpc.method_handlers_generic_handler("signals.Signals", {"Send": grpc.unary_stream_rpc_method_handler(early)})
    server = grpc.server(ThreadPoolExecutor(8), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=channel_options(QUICK)) as channel:
        method: Any = channel.unary_stream(SEND)
        under_way = method(b"x", timeout=60)
        assert under_way.initial_metadata()
        seen.set()
        assert under_way.code().name == "UNAVAILABLE"
    server.stop(None).wait()
    assert len(asked) == 1


def test_a_deadline_during_a_wait_hides_the_error() -> None:
    with GrpcFaultServer("UNAVAILABLE") as server:
        assert call(server, channel_options(RetryPolicy(2, 60, 60, 0)), timeout=0.5)[0] == "DEADLINE_EXCEEDED"
        assert server.count <= 1
