"""Calls over real connections to a server with scripted faults that counts its requests."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

from redrive import Breaker, Budget, RetryPolicy, current, deadline, errors, outcome, retry
from redrive.testing import Answer, FaultServer

QUICK = RetryPolicy(max_attempts=4, backoff_base=0.01, jitter=0)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=current().remaining) as response:
        body: bytes = response.read()
        return body


async def aget(url: str) -> bytes:
    """A minimal HTTP client."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        status = int((await reader.readline()).split()[1])
        if status != 200:
            raise ConnectionError(status)
        return (await reader.read()).partition(b"\r\n\r\n")[2]
    finally:
        writer.close()


@pytest.mark.req("C-1")
def test_transient_faults_are_retried_until_the_server_responds() -> None:
    with FaultServer(503, "reset", "close", Answer(body=b"here")) as server:
        assert retry(QUICK).call(get, server.url) == b"here"
        assert server.count == 4
        assert all(wait >= floor for wait, floor in zip(server.waits, (0.01, 0.02, 0.04), strict=True))


@pytest.mark.req("C-1")
def test_async_transient_faults_are_retried_until_the_server_responds() -> None:
    with FaultServer(503, 500, Answer(body=b"here")) as server:
        assert asyncio.run(retry(QUICK).acall(aget, server.url)) == b"here"
        assert server.count == 3


@pytest.mark.req("C-4")
def test_the_last_error_is_raised_as_the_client_raised_it() -> None:
    with FaultServer(503) as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            retry(QUICK).call(get, server.url)
        caught.value.close()
        assert server.count == 4
    assert caught.value.code == 503
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (4, "attempts")


def test_a_permanent_status_is_requested_once() -> None:
    with FaultServer(404) as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            retry(QUICK).call(get, server.url)
        caught.value.close()
        assert server.count == 1


@pytest.mark.req("C-7")
def test_three_nested_layers_make_three_requests() -> None:
    three = retry(RetryPolicy(max_attempts=3, backoff_base=0, jitter=0))
    with FaultServer(503) as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            three(three(three(get)))(server.url)
        caught.value.close()
        assert server.count == 3


@pytest.mark.req("R-6")
def test_no_retry_is_sent_before_retry_after() -> None:
    with FaultServer(Answer(429, {"retry-after-ms": "80"}), 200) as server:
        retry(QUICK).call(get, server.url)
        assert server.waits[0] >= 0.08


@pytest.mark.req("R-6")
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_retry_after_beyond_the_deadline_fails_immediately(form: str) -> None:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    header = "3000" if form == "seconds" else format_datetime(now + timedelta(seconds=3000), usegmt=True)
    headers = {"Retry-After": header, "Date": format_datetime(now, usegmt=True)}
    with FaultServer(Answer(503, headers)) as server:
        began = time.monotonic()
        with pytest.raises(urllib.error.HTTPError) as caught, deadline(30):
            retry(QUICK).call(get, server.url)
        caught.value.close()
        assert time.monotonic() - began < 30
        assert server.count == 1
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "retry_after"
    assert ended.retry_at is not None
    assert abs((ended.retry_at - now).total_seconds() - 3000) < 30


@pytest.mark.req("C-2")
def test_a_sync_attempt_passes_its_timeout_to_the_client() -> None:
    threads = threading.active_count()
    with FaultServer("hang") as server:
        before = threading.active_count()
        with pytest.raises((TimeoutError, urllib.error.URLError)):
            retry(RetryPolicy(max_attempts=3, backoff_base=0, jitter=0), attempt_timeout=0.2).call(get, server.url)
        end = time.monotonic() + 60
        while server.count < 3 and time.monotonic() < end:
            time.sleep(0.01)  # the server may lag behind its client
        assert server.count == 3
        assert threading.active_count() <= before + 3  # threads of the server, one for each connection
    assert threading.active_count() == threads


@pytest.mark.req("C-2")
def test_an_async_attempt_that_hangs_is_cancelled() -> None:
    with FaultServer("hang", "hang", Answer(body=b"here")) as server:
        layer = retry(RetryPolicy(max_attempts=30, backoff_base=0, jitter=0), attempt_timeout=0.4)
        assert asyncio.run(layer.acall(aget, server.url)) == b"here"
        assert server.count >= 3  # longer on a very busy machine


@pytest.mark.req("C-8")
def test_the_deadline_of_the_caller_bounds_every_inner_layer() -> None:
    with FaultServer("hang") as server:
        inner = retry(RetryPolicy(max_attempts=50, backoff_base=0, jitter=0), attempt_timeout=0.1)
        began = time.monotonic()
        with pytest.raises((TimeoutError, urllib.error.URLError)) as caught, deadline(0.25):
            retry(RetryPolicy(max_attempts=50, backoff_base=0, jitter=0)).call(inner(get), server.url)
        took = time.monotonic() - began
        assert 0.2 < took < 60  # 2,500 attempts would take longer
        assert server.count <= 4
        ended = outcome(caught.value)
        assert ended is not None
        assert ended.reason == "timeout"


@pytest.mark.req("C-9")
def test_a_shared_budget_limits_the_requests_of_all_clients() -> None:
    budget = Budget(capacity=10, cost=1, refill=0, floor=0)
    layer = retry(RetryPolicy(max_attempts=10, backoff_base=0, jitter=0), budget=budget)

    def client(url: str) -> None:
        for _ in range(5):
            with pytest.raises(urllib.error.HTTPError) as caught:
                layer.call(get, url)
            caught.value.close()

    with FaultServer(503) as server:
        threads = [threading.Thread(target=client, args=(server.url,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.count == 20 + 10


@pytest.mark.req("C-12")
def test_an_open_breaker_sends_nothing_until_a_probe_closes_it() -> None:
    breaker = Breaker(min_calls=3, failure_rate=0.5, open_for=0.6)
    layer = retry(RetryPolicy.disabled(), breaker=breaker)
    with FaultServer(503, 503, 503, 200) as server:
        for _ in range(3):
            with pytest.raises(urllib.error.HTTPError) as caught:
                layer.call(get, server.url)
            caught.value.close()
        with pytest.raises(errors.BreakerOpen):
            layer.call(get, server.url)
        assert server.count == 3
        time.sleep(0.65)
        assert layer.call(get, server.url) == b""
        assert (server.count, breaker.state) == (4, "closed")
