"""tenacity: all fields of the policy apply, and Retry-After."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
import tenacity

from redrive import RetryPolicy, native, outcome, retry
from redrive.native.tenacity_retry import TENACITY
from redrive.testing import Answer, FaultServer
from tests.acceptance.native.wire import QUICK, assert_waits

pytestmark = pytest.mark.req("R-10")


def fetch(url: str) -> int:
    response = httpx.get(url)
    response.raise_for_status()
    return response.status_code


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_attempts_and_waits_follow_the_policy(attempts: int) -> None:
    policy = RetryPolicy(max_attempts=attempts, backoff_base=0.02, backoff_max=0.05, jitter=0.01)
    value, dropped = native.tenacity(policy)
    with FaultServer(503) as server:
        with pytest.raises(httpx.HTTPStatusError):
            tenacity.Retrying(**value)(fetch, server.url)
        assert server.count == attempts
        if attempts > 1:
            assert_waits(server, TENACITY, policy)
    assert dropped == ()


def test_a_transient_fault_is_retried() -> None:
    with FaultServer(503, "reset", 200) as server:
        assert tenacity.retry(**native.tenacity(QUICK).value)(fetch)(server.url) == 200
        assert server.count == 3


def test_a_permanent_error_is_not_retried() -> None:
    with FaultServer(404) as server:
        with pytest.raises(httpx.HTTPStatusError):
            tenacity.Retrying(**native.tenacity(QUICK).value)(fetch, server.url)
        assert server.count == 1
    with FaultServer(503) as server:
        with pytest.raises(httpx.HTTPStatusError):
            tenacity.Retrying(**native.tenacity(QUICK, on=ConnectionError).value)(fetch, server.url)
        assert server.count == 1


def test_no_wait_exceeds_the_timeout() -> None:
    policy = RetryPolicy(max_attempts=5000, backoff_base=0.05, backoff_max=0.05, jitter=0, timeout=0.3)
    with FaultServer(503) as server:
        began = time.monotonic()
        with pytest.raises(httpx.HTTPStatusError) as caught:
            tenacity.Retrying(**native.tenacity(policy).value)(fetch, server.url)
        assert time.monotonic() - began < 60, "a busy machine takes its time; five thousand attempts would take longer"
        assert 1 <= server.count <= 6
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "timeout"


def test_retry_after_is_a_minimum() -> None:
    with FaultServer(Answer(503, {"Retry-After": "0.3"}), 200) as server:
        assert tenacity.Retrying(**native.tenacity(QUICK).value)(fetch, server.url) == 200
        assert server.waits[0] >= 0.299


def test_async_functions_are_retried() -> None:
    async def afetch(url: str) -> int:
        async with httpx.AsyncClient() as client:
            return (await client.get(url)).raise_for_status().status_code

    with FaultServer(503) as server:
        with pytest.raises(httpx.HTTPStatusError):
            asyncio.run(tenacity.AsyncRetrying(**native.tenacity(QUICK).value)(afetch, server.url))
        assert server.count == 3


def test_an_outer_layer_does_not_multiply_the_attempts() -> None:
    inner = tenacity.retry(**native.tenacity(QUICK).value)(fetch)
    with FaultServer(503) as server:
        with pytest.raises(httpx.HTTPStatusError):
            retry(QUICK)(inner)(server.url)
        assert server.count == 3
