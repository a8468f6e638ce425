"""The conformance suite through obstore: S3 (SeaweedFS), Azure (Azurite), and our server with Google's protocol."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from azure.storage.blob import ContainerClient

from redrive import RetryPolicy
from redrive.storage import Store
from redrive.storage.obstore import AzureObstore, Gcs, S3Obstore
from redrive.testing.storage import StorageConformance
from tests.conformance.storage.seeking import SeekableReads
from tests.servers.buckets import options
from tests.servers.fixtures import SERVERS
from tests.servers.gcs import TOKEN, gcs_server

QUICK = RetryPolicy(max_attempts=3, backoff_base=0.05, jitter=0.05)


@pytest.fixture(scope="module")
def s3_backends() -> Iterator[dict[str, S3Obstore]]:
    created: dict[str, S3Obstore] = {}
    yield created
    for backend in created.values():
        backend.close()


@pytest.fixture(scope="module")
def azure_backend(request: pytest.FixtureRequest) -> Iterator[AzureObstore]:
    connection = request.config.stash[SERVERS].address("Azure")
    with ContainerClient.from_connection_string(connection, f"conformance-{uuid.uuid4().hex[:8]}") as container:
        container.create_container()
        backend = AzureObstore("blobs", container=container.container_name, connection_string=connection, retry=QUICK)
        yield backend
        backend.close()
        container.delete_container()


@pytest.fixture(scope="module")
def gcs_backend() -> Iterator[Gcs]:
    with gcs_server("lake") as server:
        server.page = 3  # Listings have several pages.
        backend = Gcs("google", bucket="lake", token=TOKEN, endpoint_url=server.url, retry=QUICK)
        yield backend
        backend.close()


@pytest.mark.req("S-12", "X-6")
class TestS3Obstore(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self, s3_url: str, s3_bucket: str, s3_backends: dict[str, S3Obstore]) -> Store:
        if not s3_backends:
            s3_backends["shared"] = S3Obstore("objects", bucket=s3_bucket, **options(s3_url), retry=QUICK)
        # Under its own root, because SeaweedFS remembers empty folders, unlike Amazon.
        return Store(s3_backends["shared"], root_path=uuid.uuid4().hex[:8])


@pytest.mark.req("S-12", "X-6")
class TestAzureObstore(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self, azure_backend: AzureObstore) -> Store:
        return Store(azure_backend, root_path=uuid.uuid4().hex[:8])


@pytest.mark.req("S-12", "X-6")
class TestGcs(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self, gcs_backend: Gcs) -> Store:
        return Store(gcs_backend, root_path=uuid.uuid4().hex[:8])
