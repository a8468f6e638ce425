"""urllib3 and requests: N requests, the policy's waits from the first retry on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter

from redrive import RetryPolicy, native, retry
from redrive.native.pool import URLLIB3
from redrive.testing import Answer, FaultServer
from redrive.testing.server import Step, refused
from tests.acceptance.native.wire import QUICK, waited_as_said

pytestmark = pytest.mark.req("R-10")


@contextmanager
def session(policy: RetryPolicy) -> Iterator[requests.Session]:
    with requests.Session() as made:
        made.mount("http://", HTTPAdapter(max_retries=native.urllib3(policy).value))
        yield made


@pytest.mark.parametrize("attempts", [1, 2, 5])
@pytest.mark.parametrize("trouble", [503, 429, "reset", "hang"])
def test_so_many_requests_and_the_policys_waits(trouble: Step, attempts: int) -> None:
    policy = RetryPolicy(max_attempts=attempts, backoff_base=0.02, backoff_max=0.05, jitter=0.01)
    with FaultServer(trouble) as server, session(policy) as client:
        if isinstance(trouble, int):
            assert client.get(server.url).status_code == trouble  # the answer itself, not an error that hides it
        else:
            with pytest.raises(requests.ConnectionError):
                client.get(server.url, timeout=0.1)
        assert server.count == attempts
        if attempts > 1 and trouble != "hang":
            waited_as_said(server, URLLIB3, policy)


def test_the_bare_pool_too() -> None:
    with FaultServer(503, 503, 200) as server, urllib3.PoolManager(retries=native.urllib3(QUICK).value) as pool:
        assert pool.request("GET", server.url).status == 200
        waited_as_said(server, URLLIB3, QUICK)


def test_what_may_have_been_done_is_not_done_again() -> None:
    with FaultServer("reset") as server, session(QUICK) as client:
        with pytest.raises(requests.ConnectionError):
            client.post(server.url)
        assert server.count == 1
    with refused() as url, session(QUICK) as client, pytest.raises(requests.ConnectionError) as caught:
        client.post(url)
    assert "Max retries exceeded" in str(caught.value)


@pytest.mark.parametrize(("header", "least"), [("0.3", 0.299), ("0", 0.05), ("nonsense", 0.05)])
def test_retry_after_is_a_floor(header: str, least: float) -> None:
    with FaultServer(Answer(503, {"Retry-After": header}), 200) as server, session(QUICK) as client:
        assert client.get(server.url).status_code == 200
        assert server.waits[0] >= least - 0.001


def test_what_the_standard_rule_does_not_retry() -> None:
    for status in (404, 413, 501):
        with FaultServer(Answer(status, {"Retry-After": "0"})) as server, session(QUICK) as client:
            assert client.get(server.url).status_code == status
            assert server.count == 1


def test_layers_around_do_not_multiply() -> None:
    with FaultServer(503) as server, session(QUICK) as client:
        with pytest.raises(requests.HTTPError):
            retry(QUICK).call(lambda: client.get(server.url).raise_for_status())
        assert server.count == 3


def test_only_the_timeout_is_dropped() -> None:
    assert native.urllib3(QUICK).dropped == ()
    assert native.urllib3(RetryPolicy(timeout=5)).dropped == ("timeout",)
