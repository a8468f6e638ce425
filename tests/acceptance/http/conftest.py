"""Fixtures of the HTTP tests: sync or async mode, and a server with scripted faults."""

from __future__ import annotations

from collections.abc import Iterator

import anyio._backends._asyncio  # noqa: F401  # httpcore imports it inside the first async attempt, which has 0.3 s
import pytest

from redrive.testing import FaultServer
from tests.acceptance.http.both import Mode


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> Mode:
    found: Mode = request.param
    return found


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        yield running
