"""The suite over SFTP: on asyncssh's server, and on OpenSSH's where there is one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from redrive.storage import Store
from redrive.storage.sftp import Sftp
from redrive.testing.storage import StorageConformance


def store_of(options: dict[str, Any]) -> Iterator[Store]:
    """A store in a folder of its own."""
    backend = Sftp("box", **options)
    yield Store(backend, root_path=f"test-{uuid.uuid4().hex[:8]}")
    backend.close()


@pytest.mark.req("S-12")
class TestAsyncssh(StorageConformance):
    @pytest.fixture
    def store(self, sftp_options: dict[str, Any]) -> Iterator[Store]:
        yield from store_of(sftp_options)


@pytest.mark.req("S-12")
class TestOpenSSH(StorageConformance):
    @pytest.fixture
    def store(self, openssh_options: dict[str, Any]) -> Iterator[Store]:
        yield from store_of(openssh_options)
