"""No server delays a caller beyond the attempt's timeout, in sync code and without extra threads."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import httpx2
import pytest

from redrive import RetryPolicy, deadline, errors, http, outcome, retry
from redrive.testing import Answer, FaultServer, unreachable
from tests.acceptance.http.both import Mode, client

ONCE = retry(RetryPolicy(max_attempts=2, backoff_base=0, jitter=0), attempt_timeout=0.3)
SLOW = 30.0
"""Seconds: far more than two attempts, far less than the servers below take."""
PATIENT = retry(RetryPolicy(max_attempts=2, backoff_base=0, jitter=0), attempt_timeout=2)
"""For calls that must succeed on a busy machine."""


@contextmanager
def dripping(*, head: bool) -> Iterator[tuple[str, list[bytes]]]:
    """A server that sends one byte every 20 ms, of its headers or of its chunk sizes."""
    requests: list[bytes] = []
    closing = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while not closing.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        requests.append(connection.recv(65536))
                        connection.sendall(b"HTTP/1.1 200 OK\r\n")
                        connection.sendall(b"x-long: " if head else b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
                        while not closing.wait(0.02):
                            connection.sendall(b"0")
                    except OSError:
                        pass  # the client closed the connection

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", requests
        finally:
            closing.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def eventually(requests: list[bytes], wanted: int = 2) -> int:
    """Return the number of requests, once the server has seen them."""
    end = time.monotonic() + 60
    while len(requests) < wanted and time.monotonic() < end:
        time.sleep(0.01)
    return len(requests)


def took(work: Callable[[], object]) -> float:
    began = time.monotonic()
    with pytest.raises((httpx2.TimeoutException, httpx.TimeoutException)):
        work()
    return time.monotonic() - began


@pytest.mark.req("H-4", "C-8")
@pytest.mark.parametrize(
    "trouble",
    [
        "hang",
        Answer(delay=60),
        Answer(body=b"x" * 2000, trouble="drip", pace=0.1),
        Answer(503, body=b"x" * 2000, trouble="drip", pace=0.1),
    ],
    ids=["hang", "late", "drip", "drip of an error"],
)
def test_a_slow_server_does_not_delay_the_caller(mode: Mode, server: FaultServer, trouble: Answer) -> None:
    server.script(trouble)
    with client(mode, server.url, retry=ONCE) as api:
        assert 0.5 < took(lambda: api.get("/")) < SLOW
        end = time.monotonic() + 60
        while server.count < 2 and time.monotonic() < end:
            time.sleep(0.01)  # the server may lag behind its client
    assert server.count == 2


@pytest.mark.req("H-4", "C-8")
@pytest.mark.parametrize("head", [True, False], ids=["head", "chunk"])
def test_a_slow_drip_ends_with_the_attempt(mode: Mode, head: bool) -> None:
    with dripping(head=head) as (url, requests), client(mode, url, retry=ONCE) as api:
        assert 0.5 < took(lambda: api.get("/")) < SLOW
        assert eventually(requests) == 2


@pytest.mark.req("H-4", "C-8")
@pytest.mark.parametrize("head", [True, False], ids=["head", "chunk"])
@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_the_transport_ends_with_the_attempt(library: type[httpx], head: bool) -> None:  # type: ignore[valid-type]  # a module
    with dripping(head=head) as (url, requests), library.Client(transport=http.Transport(retry=ONCE)) as api:  # type: ignore[attr-defined]
        assert took(lambda: api.get(url)) < SLOW
        assert eventually(requests, 2 if head else 1) == (2 if head else 1), "a body that has begun is the client's to read, once"


@pytest.mark.req("C-8")
def test_an_open_client_of_the_user_ends_with_the_attempt() -> None:
    class Mine(httpx2.BaseTransport):
        """A user's transport around httpx2's."""

        def __init__(self) -> None:
            self.inner = httpx2.HTTPTransport()

        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            return self.inner.handle_request(request)

        def close(self) -> None:
            self.inner.close()

    drip = Answer(body=b"x" * 2000, trouble="drip", pace=0.1)
    with FaultServer(drip) as server, httpx2.Client(transport=Mine()) as mine:
        api = http.Client(server.url, client=mine, retry=ONCE)
        assert 0.5 < took(lambda: api.get("/")) < SLOW


@pytest.mark.req("C-8")
def test_a_surrounding_deadline_is_kept(mode: Mode, server: FaultServer) -> None:
    server.script(Answer(body=b"x" * 2000, trouble="drip", pace=0.1))
    for limit in (retry(attempt_timeout=None), retry(), RetryPolicy(timeout=0.3)):
        with client(mode, server.url, retry=limit) as api, deadline(0.3):
            assert took(lambda api=api: api.get("/")) < SLOW  # type: ignore[misc]  # the default binds it
            time.sleep(0.05)  # async code ends a little before the deadline
            with pytest.raises(errors.AttemptTimeout, match="the deadline had passed") as caught:
                api.get("/")
        ended = outcome(caught.value)
        assert ended is not None
        assert ended.attempts == 0


@pytest.mark.req("C-10")
def test_a_connect_timeout_means_that_nothing_was_sent(mode: Mode) -> None:
    with unreachable() as url, client(mode, url, retry=ONCE) as api:
        began = time.monotonic()
        with pytest.raises(httpx2.ConnectTimeout) as caught:
            api.post("/", json={})
        assert time.monotonic() - began < SLOW
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (2, "attempts")


@pytest.mark.req("C-10")
def test_a_half_open_connection_is_replaced(mode: Mode, server: FaultServer) -> None:
    server.script(Answer(body=b"one", trouble="half-open"), Answer(body=b"two"))
    with client(mode, server.url, retry=PATIENT) as api:
        assert api.get("/").text == "one"
        assert api.get("/").text == "two"
        server.script(Answer(body=b"three", trouble="half-open"), 200)
        assert api.get("/").text == "three"
        with pytest.raises(httpx2.ReadTimeout) as caught:
            api.post("/", json={})
        ended = outcome(caught.value)
        assert ended is not None
        assert ended.reason == "not_idempotent", "nobody knows whether it was read"
        assert caught.value.request.url == f"{server.url}/"


@pytest.mark.req("H-4")
def test_a_body_read_through_the_transport_ends_with_the_attempt(server: FaultServer) -> None:
    server.script(Answer(body=b"x" * 2000, trouble="drip", pace=0.1))
    with httpx2.Client(transport=http.Transport(retry=ONCE)) as api, api.stream("GET", server.url) as response:
        assert took(lambda: list(response.iter_bytes())) < SLOW
    assert server.count == 1


@pytest.mark.req("H-4")
def test_a_stream_without_attempt_timeout_is_not_limited(server: FaultServer) -> None:
    server.script(Answer(body=b"x" * 20, trouble="drip", pace=0.06))
    with httpx.Client(transport=http.Transport(), timeout=1) as api, api.stream("GET", server.url) as response:
        assert b"".join(response.iter_bytes()) == b"x" * 20


def test_timeout_limits_one_call(mode: Mode) -> None:
    """timeout= bounds the whole call, attempts and waits. The client's own limits are unchanged."""
    with FaultServer("hang") as server, client(mode, server.url, retry=retry(attempt_timeout=SLOW)) as api:
        started = time.monotonic()
        with pytest.raises(httpx2.TimeoutException) as caught:
            api.get("/", timeout=0.3)
        assert time.monotonic() - started < SLOW
        ended = outcome(caught.value)
        assert ended is not None
        assert ended.reason == "timeout"
        server.script(503)
        with pytest.raises(httpx2.HTTPStatusError) as refused:
            api.post("/", idempotency_key=True, timeout=0.1)
        ended = outcome(refused.value)
        assert ended is not None
        assert (ended.attempts, ended.reason) == (1, "timeout"), "the wait of 0.25 s does not fit"
        server.script(200)
        assert api.get("/", timeout=SLOW).status_code == 200
