"""The suite on Azure's blobs: Azurite, through azure-storage-blob."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive import RetryPolicy
from redrive.storage import Store
from redrive.storage.azure import Azure
from redrive.testing.storage import StorageConformance


@pytest.mark.req("S-12")
class TestAzure(StorageConformance):
    @pytest.fixture
    def store(self, azure_connection: str, azure_container: str) -> Iterator[Store]:
        quick = RetryPolicy(max_attempts=3, backoff_base=0.05, jitter=0.05)
        backend = Azure("blobs", container=azure_container, connection_string=azure_connection, retry=quick)
        yield Store(backend)
        backend.close()
