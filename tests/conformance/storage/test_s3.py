"""The suite on S3: SeaweedFS, through s3fs."""

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
    """Made once: a client of botocore takes half a second."""
    made: dict[str, S3] = {}
    yield made
    for backend in made.values():
        backend.close()


@pytest.mark.req("S-12")
class TestS3(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self, s3_url: str, s3_bucket: str, backends: dict[str, S3]) -> Store:
        if not backends:
            backends["one"] = S3("objects", bucket=s3_bucket, **options(s3_url), retry=RetryPolicy(max_attempts=3))
        # Under a root of its own: SeaweedFS remembers folders that are empty, as Amazon does not.
        return Store(backends["one"], root_path=uuid.uuid4().hex[:8])


@pytest.mark.req("S-12")
def test_a_key_of_1024_bytes(s3_url: str, s3_bucket: str) -> None:
    backend = S3("objects", bucket=s3_bucket, **options(s3_url))
    path = "/".join(["x" * 127] * 8)
    Store(backend).write(path + "y", b"long")
    assert Store(backend).read_bytes(path + "y") == b"long"
    backend.close()


def test_one_that_is_forgotten_in_async_code_leaves_no_task_there(s3_url: str, s3_bucket: str) -> None:
    def used() -> list[S3]:
        backend = S3("objects", bucket=s3_bucket, **options(s3_url))
        assert list(backend.files("nothing", recursive=True)) == []
        return [backend]

    async def main() -> None:
        made = await asyncio.to_thread(used)
        gc.collect()
        before = asyncio.all_tasks()
        made.clear()
        gc.collect()
        assert asyncio.all_tasks() == before

    asyncio.run(main())
