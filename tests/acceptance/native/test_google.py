"""google-api-core: N requests, waits up to the policy's, sync and async."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import requests

from redrive import RetryPolicy, native, outcome, retry
from redrive.native.google_api import GOOGLE
from redrive.testing import FaultServer
from tests.acceptance.classify.clients import google_api
from tests.acceptance.native.wire import QUICK, waited_as_said

pytestmark = pytest.mark.req("R-10")


def fetch(url: str) -> Any:
    """As a client of Google's does over REST."""
    exceptions, _ = google_api()
    response = requests.get(url, timeout=30)
    if response.status_code >= 400:
        raise exceptions.from_http_response(response)
    return response


def call(policy: RetryPolicy, url: str, is_async: bool) -> Any:
    async def fetch_async(where: str) -> Any:
        return fetch(where)

    made = native.google(policy, is_async=is_async).value
    if made is None:
        return fetch(url)
    return asyncio.run(made(fetch_async)(url)) if is_async else made(fetch)(url)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("attempts", [1, 2, 5])
@pytest.mark.parametrize("status", [503, 429])
def test_so_many_requests_and_waits_up_to_the_policys(status: int, attempts: int, is_async: bool) -> None:
    policy = RetryPolicy(max_attempts=attempts, backoff_base=0.02, backoff_max=0.05, jitter=0)
    exceptions, _ = google_api()
    with FaultServer(status) as server:
        with pytest.raises(exceptions.GoogleAPICallError):
            call(policy, server.url, is_async)
        assert server.count == attempts
        if attempts > 1:
            waited_as_said(server, GOOGLE, policy)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_each_call_has_its_own_count(is_async: bool) -> None:
    with FaultServer(503, 503, 200, 503, 503, 200) as server:
        for count in (3, 6):
            assert call(QUICK, server.url, is_async).status_code == 200
            assert server.count == count


def test_what_is_not_worth_it_is_sent_once() -> None:
    exceptions, _ = google_api()
    with FaultServer(404) as server, pytest.raises(exceptions.NotFound):
        call(QUICK, server.url, is_async=False)
    assert server.count == 1


def test_the_policys_timeout_ends_it() -> None:
    exceptions, _ = google_api()
    policy = RetryPolicy(max_attempts=1000, backoff_base=0.05, backoff_max=0.05, jitter=0, timeout=0.3)
    with FaultServer(503) as server, pytest.raises(exceptions.RetryError):
        call(policy, server.url, is_async=False)
    assert 2 <= server.count < 1000


@pytest.mark.req("C-7")
def test_a_layer_around_it_does_not_begin_anew() -> None:
    exceptions, _ = google_api()
    layer = retry(RetryPolicy(3, 0, 0, 0))
    with FaultServer(503) as server:
        with pytest.raises(exceptions.ServiceUnavailable) as caught:
            layer.call(call, QUICK, server.url, is_async=False)
        assert server.count == 3
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.layer, ended.attempts) == ("google-api-core", 3)


def test_what_has_no_place_is_told() -> None:
    assert native.google(QUICK).dropped == ("jitter",)
    assert native.google(RetryPolicy.disabled()) == (None, ())
