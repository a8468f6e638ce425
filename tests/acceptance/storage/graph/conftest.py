"""A Graph server with scripted faults, and stores on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive import RetryPolicy
from redrive.storage import Store
from redrive.storage.graph import Graph, transfer
from redrive.storage.graph.transfer import UPLOAD_CHUNK_BYTES
from tests.servers.graph import Fault, GraphServer, graph_server

QUICK = RetryPolicy(max_attempts=3, backoff_base=0.01, backoff_max=0.02, jitter=0.0)
LARGE = 2 * UPLOAD_CHUNK_BYTES + 12_345
TOKEN = "good"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GraphServer]:
    monkeypatch.setattr(transfer, "FIRST_POLL_SECONDS", 0.01)
    with graph_server() as graph:
        yield graph


@pytest.fixture
def make_store(server: GraphServer) -> Iterator[Callable[..., Store]]:
    """Yield a function that creates stores on the server."""
    backends: list[Graph] = []

    def make(policy: RetryPolicy | None = QUICK, **options: Any) -> Store:
        defaults: dict[str, Any] = {"drive": "drives/d1", "token": TOKEN, "base_url": f"{server.service}/v1.0", "timeout": 5.0}
        backends.append(Graph("one", retry=policy, **defaults | options))
        return Store(backends[-1])

    yield make
    for backend in backends:
        backend.close()


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    return make_store()


TRANSIENT_FAULTS: list[Fault] = [500, 502, 503, 504, (429, "activityLimitReached", {}), "reset", "cut"]
