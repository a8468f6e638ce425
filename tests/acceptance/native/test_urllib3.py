"""urllib3 and requests: attempts and waits follow the policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter

from redrive import RetryPolicy, native, retry
from redrive.native.http_clients import URLLIB3
from redrive.testing import Answer, FaultServer
from redrive.testing.http_server import Step, refused
from tests.acceptance.native.wire import QUICK, assert_waits

pytestmark = pytest.mark.req("R-10")


@contextmanager
def session(policy: RetryPolicy) -> Iterator[requests.Session]:
    with requests.Session() as client:
        client.mount("http://", HTTPAdapter(max_retries=native.urllib3(policy).value))
        yield client


@pytest.mark.parametrize("attempts", [1, 2, 5])
@pytest.mark.parametrize("trouble", [503, 429, "reset", "hang"])
def test_attempts_and_waits_follow_the_policy(trouble: Step, attempts: int) -> None:
    policy = RetryPolicy(max_attempts=attempts, backoff_base=0.02, backoff_max=0.05, jitter=0.01)
    with FaultServer(trouble) as server, session(policy) as client:
        if isinstance(trouble, int):
            assert client.get(server.url).status_code == trouble  # The response, not an error.
        else:
            with pytest.raises(requests.ConnectionError):
                client.get(server.url, timeout=0.1)
        assert server.count == attempts
        if attempts > 1 and trouble != "hang":
            assert_waits(server, URLLIB3, policy)


def test_a_pool_without_requests_follows_the_policy() -> None:
    with FaultServer(503, 503, 200) as server, urllib3.PoolManager(retries=native.urllib3(QUICK).value) as pool:
        assert pool.request("GET", server.url).status == 200
        assert_waits(server, URLLIB3, QUICK)


def test_a_request_that_is_not_idempotent_is_not_retried() -> None:
    with FaultServer("reset") as server, session(QUICK) as client:
        with pytest.raises(requests.ConnectionError):
            client.post(server.url)
        assert server.count == 1
    with refused() as url, session(QUICK) as client, pytest.raises(requests.ConnectionError) as caught:
        client.post(url)
    assert "Max retries exceeded" in str(caught.value)


@pytest.mark.parametrize(("header", "least"), [("0.3", 0.299), ("0", 0.05), ("nonsense", 0.05)])
def test_retry_after_is_a_minimum(header: str, least: float) -> None:
    with FaultServer(Answer(503, {"Retry-After": header}), 200) as server, session(QUICK) as client:
        assert client.get(server.url).status_code == 200
        assert server.waits[0] >= least - 0.001


def test_a_permanent_status_is_not_retried() -> None:
    for status in (404, 413, 501):
        with FaultServer(Answer(status, {"Retry-After": "0"})) as server, session(QUICK) as client:
            assert client.get(server.url).status_code == status
            assert server.count == 1


def test_an_outer_layer_does_not_multiply_the_attempts() -> None:
    with FaultServer(503) as server, session(QUICK) as client:
        with pytest.raises(requests.HTTPError):
            retry(QUICK).call(lambda: client.get(server.url).raise_for_status())
        assert server.count == 3


def test_only_the_timeout_is_dropped() -> None:
    assert native.urllib3(QUICK).dropped == ()
    assert native.urllib3(RetryPolicy(timeout=5)).dropped == ("timeout",)
