"""The suite over Graph, on a server of ours that follows the documented protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive.storage import Store
from redrive.storage.graph import Graph, monitor
from redrive.testing.storage import StorageConformance
from tests.servers.graph import graph_server


@pytest.mark.req("S-12")
class TestGraph(StorageConformance):
    unsupported_names = (
        "percent%20/plus+and&=?#hash",
        "quote'\"and;semicolon",
        "dots.../..three",
        "~tilde/$dollar/*star[1]",
    )

    @pytest.fixture
    def store(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
        monkeypatch.setattr(monitor, "FIRST", 0.01)
        with graph_server() as server:
            backend = Graph("sharepoint", drive="drives/d1", token="good", base_url=f"{server.service}/v1.0")
            yield Store(backend)
            backend.close()
