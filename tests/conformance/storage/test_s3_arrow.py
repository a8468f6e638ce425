"""The conformance suite on S3: SeaweedFS, through PyArrow."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from redrive import RetryPolicy
from redrive.storage import Store
from redrive.storage.s3 import S3Arrow
from redrive.testing.storage import StorageConformance
from tests.conformance.storage.seeking import SeekableReads
from tests.servers.buckets import options


@pytest.fixture(scope="module")
def backends() -> Iterator[dict[str, S3Arrow]]:
    """Created once, because a client of botocore takes half a second."""
    created: dict[str, S3Arrow] = {}
    yield created
    for backend in created.values():
        backend.close()


@pytest.mark.req("S-12")
class TestS3Arrow(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self, s3_url: str, s3_bucket: str, backends: dict[str, S3Arrow]) -> Store:
        if not backends:
            backends["shared"] = S3Arrow("objects", bucket=s3_bucket, **options(s3_url), retry=RetryPolicy(max_attempts=3))
        # Under its own root, because SeaweedFS remembers empty folders, unlike Amazon.
        return Store(backends["shared"], root_path=uuid.uuid4().hex[:8])
