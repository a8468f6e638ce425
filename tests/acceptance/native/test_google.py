"""google-api-core: attempts and longest waits follow the policy, sync and async."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import requests

from redrive import RetryPolicy, native, outcome, retry
from redrive.native.google_api import GOOGLE
from redrive.testing import FaultServer
from tests.acceptance.classify.clients import google_api
from tests.acceptance.native.wire import QUICK, assert_waits

pytestmark = pytest.mark.req("R-10")


def fetch(url: str) -> Any:
    """As a REST client of Google does."""
    exceptions, _ = google_api()
    response = requests.get(url, timeout=30)
    if response.status_code >= 400:
        raise exceptions.from_http_response(response)
    return response


def call(policy: RetryPolicy, url: str, is_async: bool) -> Any:
    async def fetch_async(where: str) -> Any:
        return fetch(where)

    retrying = native.google(policy, is_async=is_async).value
    if retrying is None:
        return fetch(url)
    return asyncio.run(retrying(fetch_async)(url)) if is_async else retrying(fetch)(url)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("attempts", [1, 2, 5])
@pytest.mark.parametrize("status", [503, 429])
def test_attempts_follow_the_policy_and_limit_the_waits(status: int, attempts: int, is_async: bool) -> None:
    policy = RetryPolicy(max_attempts=attempts, backoff_base=0.02, backoff_max=0.05, jitter=0)
    exceptions, _ = google_api()
    with FaultServer(status) as server:
        with pytest.raises(exceptions.GoogleAPICallError):
            call(policy, server.url, is_async)
        assert server.count == attempts
        if attempts > 1:
            assert_waits(server, GOOGLE, policy)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_each_call_has_its_own_count(is_async: bool) -> None:
    with FaultServer(503, 503, 200, 503, 503, 200) as server:
        for count in (3, 6):
            assert call(QUICK, server.url, is_async).status_code == 200
            assert server.count == count


def test_a_permanent_error_is_not_retried() -> None:
    exceptions, _ = google_api()
    with FaultServer(404) as server, pytest.raises(exceptions.NotFound):
        call(QUICK, server.url, is_async=False)
    assert server.count == 1


def test_the_timeout_of_the_policy_ends_the_retries() -> None:
    exceptions, _ = google_api()
    policy = RetryPolicy(max_attempts=1000, backoff_base=0.05, backoff_max=0.05, jitter=0, timeout=0.3)
    with FaultServer(503) as server, pytest.raises(exceptions.RetryError):
        call(policy, server.url, is_async=False)
    assert 2 <= server.count < 1000


@pytest.mark.req("C-7")
def test_an_outer_layer_does_not_retry_again() -> None:
    exceptions, _ = google_api()
    layer = retry(RetryPolicy(3, 0, 0, 0))
    with FaultServer(503) as server:
        with pytest.raises(exceptions.ServiceUnavailable) as caught:
            layer.call(call, QUICK, server.url, is_async=False)
        assert server.count == 3
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.layer, ended.attempts) == ("google-api-core", 3)


def test_ignored_fields_are_reported() -> None:
    assert native.google(QUICK).dropped == ("jitter",)
    assert native.google(RetryPolicy.disabled()) == (None, ())
