"""Fixtures of the HTTP tests: a colour, and a server that misbehaves as told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive.testing import FaultServer
from tests.acceptance.http.both import Colour


@pytest.fixture(params=["plain", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    found: Colour = request.param
    return found


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        yield running
