"""The conformance suite on memory."""

from __future__ import annotations

import pytest

from redrive.storage import Store
from redrive.storage.memory import Memory
from redrive.testing.storage import StorageConformance
from tests.conformance.storage.seeking import SeekableReads


@pytest.mark.req("S-12")
class TestMemory(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self) -> Store:
        return Store(Memory())
