"""The conformance suite on a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.storage import Store
from redrive.storage.local import Local
from redrive.testing.storage import StorageConformance
from tests.conformance.storage.seeking import SeekableReads


@pytest.mark.req("S-12")
class TestLocal(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return Store(Local("disk", root=str(tmp_path)))


@pytest.mark.req("S-12")
class TestLocalUnderARoot(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return Store(Local("disk", root=str(tmp_path)), root_path="deep/inside")
