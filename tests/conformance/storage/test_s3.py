"""The conformance suite on S3: SeaweedFS, through s3fs."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Iterator

import pytest

from redrive import RetryPolicy
from redrive.storage import Store
from redrive.storage.s3 import S3
from redrive.testing.storage import StorageConformance
from tests.conformance.storage.seeking import SeekableReads
from tests.servers.buckets import options


@pytest.fixture(scope="module")
def backends() -> Iterator[dict[str, S3]]:
    """Created once, because a client of botocore takes half a second."""
    created: dict[str, S3] = {}
    yield created
    for backend in created.values():
        backend.close()


@pytest.mark.req("S-12")
class TestS3(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self, s3_url: str, s3_bucket: str, backends: dict[str, S3]) -> Store:
        if not backends:
            backends["shared"] = S3("objects", bucket=s3_bucket, **options(s3_url), retry=RetryPolicy(max_attempts=3))
        # Under its own root, because SeaweedFS remembers empty folders, unlike Amazon.
        return Store(backends["shared"], root_path=uuid.uuid4().hex[:8])


@pytest.mark.req("S-12")
def test_a_key_of_1024_bytes_is_written(s3_url: str, s3_bucket: str) -> None:
    backend = S3("objects", bucket=s3_bucket, **options(s3_url))
    path = "/".join(["x" * 127] * 8)
    Store(backend).write(path + "y", b"long")
    assert Store(backend).read_bytes(path + "y") == b"long"
    backend.close()


def test_a_backend_dropped_in_async_code_leaves_no_task(s3_url: str, s3_bucket: str) -> None:
    def use_backend() -> list[S3]:
        backend = S3("objects", bucket=s3_bucket, **options(s3_url))
        assert list(backend.files("nothing", recursive=True)) == []
        return [backend]

    async def main() -> None:
        backends = await asyncio.to_thread(use_backend)
        gc.collect()
        before = asyncio.all_tasks()
        backends.clear()
        gc.collect()
        assert asyncio.all_tasks() == before

    asyncio.run(main())
