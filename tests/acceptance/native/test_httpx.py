"""httpx and httpx2: only connecting is retried."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest

from redrive import RetryPolicy, native
from redrive.native.http_clients import HTTPX
from redrive.testing import FaultServer
from redrive.testing.http_server import refused
from tests.acceptance.native.wire import SLACK

pytestmark = pytest.mark.req("R-10")
LIBRARIES: list[ModuleType] = [httpx, httpx2]


@contextmanager
def connects() -> Iterator[Callable[[], list[float]]]:
    """The times of connection attempts."""
    times: list[float] = []
    real = socket.socket.connect
    guard = threading.Lock()

    def connect(self: socket.socket, address: Any, /) -> None:
        with guard:
            times.append(time.monotonic())
        real(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        yield lambda: times


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__)
def test_connecting_is_retried(library: ModuleType) -> None:
    policy = RetryPolicy(max_attempts=3, timeout=9)
    value, dropped = native.httpx(policy)
    with refused() as url, connects() as times, library.Client(transport=library.HTTPTransport(**value)) as client:
        with pytest.raises(library.ConnectError):
            client.get(url)
        seen = times()
    assert len(seen) == 3
    for attempt, (before, after) in enumerate(pairwise(seen), 1):
        least, most = HTTPX.wait_range(policy, attempt)
        assert least <= after - before <= most + SLACK
    assert dropped == ("backoff_base", "backoff_max", "jitter", "timeout")


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__)
def test_responses_and_resets_are_not_retried(library: ModuleType) -> None:
    value = native.httpx(RetryPolicy(max_attempts=3)).value
    with FaultServer(503, "reset") as server, library.Client(transport=library.HTTPTransport(**value)) as client:
        assert client.get(server.url).status_code == 503
        with pytest.raises(library.TransportError):
            client.get(server.url)
        assert server.count == 2
    assert HTTPX.notes[0].startswith("Only connecting is retried")
