"""The conformance suite on SFTP: the server of asyncssh, and OpenSSH if it is installed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from redrive.storage import Store
from redrive.storage.sftp import Sftp
from redrive.testing.storage import StorageConformance
from tests.conformance.storage.seeking import SeekableReads


@pytest.fixture(scope="module")
def backends() -> Iterator[dict[str, Sftp]]:
    """Created once for a server, because a handshake takes longer than most tests."""
    created: dict[str, Sftp] = {}
    yield created
    for backend in created.values():
        backend.close()


def store_of(server: str, options: dict[str, Any], backends: dict[str, Sftp]) -> Store:
    """A store in its own folder."""
    if server not in backends:
        backends[server] = Sftp("box", **options)
    return Store(backends[server], root_path=f"test-{uuid.uuid4().hex[:8]}")


@pytest.mark.req("S-12")
class TestAsyncssh(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self, sftp_options: dict[str, Any], backends: dict[str, Sftp]) -> Store:
        return store_of("asyncssh", sftp_options, backends)


@pytest.mark.req("S-12")
class TestOpenSSH(StorageConformance, SeekableReads):
    @pytest.fixture
    def store(self, openssh_options: dict[str, Any], backends: dict[str, Sftp]) -> Store:
        return store_of("OpenSSH", openssh_options, backends)
