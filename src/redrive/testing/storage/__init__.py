"""The conformance suite of storage: what every backend must do. Run it on a backend of yours:

class TestMine(StorageConformance):
    @pytest.fixture
    def store(self):
        yield Store(Mine("mine", ...))        # empty, and nobody else's
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ...storage import Store
from .listing import Listing
from .naming import Naming
from .racing import Racing
from .writing import Writing

__all__ = ["StorageConformance"]


class StorageConformance(Writing, Listing, Racing, Naming):
    """One behaviour on every backend: subclass it, and give it the fixture `store`."""

    unsupported_names: tuple[str, ...] = ()
    """Those of `sample.NAMES` that the service behind the backend cannot hold; they must raise PathInvalid."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """The store to try: empty, and nobody else's."""
        raise NotImplementedError("give the suite a fixture `store`")
