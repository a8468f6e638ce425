"""The conformance suite of storage: the behaviour of every backend. Run it on your own backend:

class TestMyBackend(StorageConformance):
    @pytest.fixture
    def store(self):
        yield Store(MyBackend("mine", ...))        # empty, and used by this test only
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ...storage import Store
from .listing import ListingTests
from .paths import PathTests
from .writing import ConcurrencyTests, WritingTests

__all__ = ["StorageConformance"]


class StorageConformance(WritingTests, ListingTests, ConcurrencyTests, PathTests):
    """One behaviour on every backend. Subclass it and define the fixture `store`."""

    unsupported_names: tuple[str, ...] = ()
    """Names of `samples.VALID_PATHS` that the service cannot hold. They must raise PathInvalid."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """Yield an empty store that only this test uses."""
        raise NotImplementedError("give the suite a fixture `store`")
