"""The conformance suite on Graph, with our server that follows the documented protocol."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from redrive.storage import Store
from redrive.storage.graph import Graph, transfer
from redrive.testing.storage import StorageConformance
from tests.conformance.storage.seeking import SeekableReads
from tests.servers.graph import graph_server


@pytest.fixture(scope="module")
def backend() -> Iterator[Graph]:
    """Created once, on a drive that all tests of this file share."""
    with graph_server() as server:
        backend = Graph("sharepoint", drive="drives/d1", token="good", base_url=f"{server.service}/v1.0")
        yield backend
        backend.close()


@pytest.mark.req("S-12")
class TestGraph(StorageConformance, SeekableReads):
    unsupported_names = (
        "percent%20/plus+and&=?#hash",
        "quote'\"and;semicolon",
        "dots.../..three",
        "~tilde/$dollar/*star[1]",
    )

    @pytest.fixture
    def store(self, backend: Graph, monkeypatch: pytest.MonkeyPatch) -> Store:
        monkeypatch.setattr(transfer, "FIRST_POLL_SECONDS", 0.01)
        return Store(backend, root_path=uuid.uuid4().hex[:8])
