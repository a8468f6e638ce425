"""The conformance suite on Azure: Azurite, through azure-storage-blob."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from azure.storage.blob import ContainerClient

from redrive import RetryPolicy
from redrive.storage import Store
from redrive.storage.azure import Azure
from redrive.testing.storage import StorageConformance
from tests.conformance.storage.seeking import SeekableReads
from tests.servers.fixtures import SERVERS


@pytest.fixture(scope="module")
def backend(request: pytest.FixtureRequest) -> Iterator[Azure]:
    """Created once, because a client takes longer than most tests."""
    connection = request.config.stash[SERVERS].address("Azure")
    with ContainerClient.from_connection_string(connection, f"conformance-{uuid.uuid4().hex[:8]}") as container:
        container.create_container()
        quick = RetryPolicy(max_attempts=3, backoff_base=0.05, jitter=0.05)
        backend = Azure("blobs", container=container.container_name, connection_string=connection, retry=quick)
        yield backend
        backend.close()
        container.delete_container()


@pytest.mark.req("S-12")
class TestAzure(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self, backend: Azure) -> Store:
        return Store(backend, root_path=uuid.uuid4().hex[:8])
