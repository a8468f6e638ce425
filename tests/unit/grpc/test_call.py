"""`redrive.grpc.retry` without a server."""

from __future__ import annotations

import asyncio

import pytest

from redrive import RetryPolicy, outcome
from redrive.analysis.layer import Layer
from redrive.grpc import AsyncInterceptor, Interceptor, channel_options, retry
from redrive.testing import instant
from tests.unit.batch.buffer.world import rpc_error

pytestmark = pytest.mark.req("G-2")


def test_default_codes_waits_and_timeout() -> None:
    layer = Layer.of(retry())
    assert layer.on == ("UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED")
    assert [layer.wait(attempt) for attempt in (1, 2)] == [(0.05, 0.05), (0.1, 0.1)]
    assert (layer.max_attempts, layer.attempt_limit) == (3, 30)


def test_a_custom_policy_is_used() -> None:
    assert retry(RetryPolicy(7), attempt_timeout=None).policy.max_attempts == 7


def test_three_attempts_by_default() -> None:
    calls = 0

    def call() -> str:
        nonlocal calls
        calls += 1
        raise rpc_error("INTERNAL")

    with instant() as clock:
        before = clock.monotonic()
        with pytest.raises(Exception, match="INTERNAL") as caught:
            retry(behind=channel_options()).call(call)
        assert clock.monotonic() - before == pytest.approx(0.15)
    assert calls == 3
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "attempts"


def test_a_code_of_the_channel_is_not_retried() -> None:
    async def call() -> str:
        raise rpc_error("UNAVAILABLE")

    with pytest.raises(Exception, match="UNAVAILABLE") as caught:
        asyncio.run(retry(behind=channel_options()).acall(call))
    assert "did not retry: an inner layer already used its retries" in caught.value.__notes__[0]


@pytest.mark.parametrize("kind", [Interceptor, AsyncInterceptor])
def test_an_interceptor_rejects_a_policy(kind: type) -> None:
    with pytest.raises(TypeError, match="a result of redrive.grpc.retry"):
        kind(RetryPolicy())
