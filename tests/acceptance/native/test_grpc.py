"""gRPC: attempts follow the policy. Values that grpcio would change silently are rejected."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

import grpc
import pytest

from redrive import RetryPolicy, native
from redrive.native.grpc import GRPC, MIN_WAIT_SECONDS, retry_policy
from tests.acceptance.native.wire import SLACK

pytestmark = pytest.mark.req("R-10")


class Counting(grpc.GenericRpcHandler):
    """Responds to every call with one status, and records the times."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self.code = code
        self.times: list[float] = []
        self._guard = threading.Lock()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with self._guard:
            self.times.append(time.monotonic())
        context.abort(self.code, "scripted")


@contextmanager
def serving(code: grpc.StatusCode) -> Iterator[tuple[Counting, str]]:
    counting = Counting(code)
    server = grpc.server(ThreadPoolExecutor(4), handlers=[counting])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield counting, f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def call(target: str, policy: RetryPolicy, *codes: str) -> None:
    options = native.grpc_options(policy, codes=codes or ("UNAVAILABLE",)).value
    with grpc.insecure_channel(target, options=list(options)) as channel:
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/a.B/C")
        method(b"x", timeout=60)


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_attempts_and_waits_follow_the_policy(attempts: int) -> None:
    policy = RetryPolicy(max_attempts=attempts, backoff_base=0.05, backoff_max=0.1, jitter=0)
    with serving(grpc.StatusCode.UNAVAILABLE) as (counting, target):
        with pytest.raises(grpc.RpcError):
            call(target, policy)
        assert len(counting.times) == attempts
        for attempt, (before, after) in enumerate(pairwise(counting.times), 1):
            least, most = GRPC.wait_range(policy, attempt)
            assert least - 0.005 <= after - before <= most + SLACK


def test_only_the_given_codes_are_retried() -> None:
    policy = RetryPolicy(max_attempts=3, backoff_base=0.02)
    with serving(grpc.StatusCode.INTERNAL) as (counting, target):
        with pytest.raises(grpc.RpcError):
            call(target, policy)
        assert len(counting.times) == 1
        with pytest.raises(grpc.RpcError):
            call(target, policy, "UNAVAILABLE", "INTERNAL")
        assert len(counting.times) == 4


def test_waits_are_long_enough_that_grpcio_does_not_hang() -> None:
    policy = RetryPolicy(max_attempts=4, backoff_base=0, backoff_max=0.001, jitter=0)
    options, dropped = native.grpc_options(policy)
    assert dropped == ("backoff_base", "backoff_max", "jitter")
    (method_config,) = json.loads(dict(options)["grpc.service_config"])["methodConfig"]
    assert (
        method_config["retryPolicy"]["initialBackoff"] == method_config["retryPolicy"]["maxBackoff"] == f"{MIN_WAIT_SECONDS:g}s"
    )
    assert "timeout" not in method_config, "grpcio fires it early"
    with serving(grpc.StatusCode.UNAVAILABLE) as (counting, target):
        began = time.monotonic()
        for _ in range(5):
            with pytest.raises(grpc.RpcError):
                call(target, policy)
        assert len(counting.times) == 20
        assert time.monotonic() - began < 60


def test_more_than_five_attempts_are_rejected() -> None:
    with pytest.raises(ValueError, match="grpc makes 5 attempts at most, in silence; max_attempts=6 cannot be carried over"):
        native.grpc_options(RetryPolicy(max_attempts=6))


def test_one_attempt_disables_retries_of_the_channel() -> None:
    assert native.grpc_options(RetryPolicy.disabled()) == ((("grpc.enable_retries", 0),), ())
    with pytest.raises(ValueError, match="enable_retries"):
        retry_policy(RetryPolicy.disabled())


@pytest.mark.parametrize("codes", [(), ("UNAVAILABLE", "SLOW"), ("unavailable",)])
def test_invalid_codes_are_rejected(codes: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="gRPC's status codes"):
        native.grpc_options(RetryPolicy(), codes=codes)
