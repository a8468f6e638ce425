"""Names of a wrong or hostile server are dropped from listings."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import pytest

from redrive.storage import Store
from redrive.storage.graph import Graph
from redrive.storage.local import Local
from redrive.storage.path import ListingFilter
from redrive.storage.sftp import Sftp
from tests.servers.graph import graph_server

HOSTILE = ["../../evil", "/etc/passwd", "a/b", "..", ".", "", "back\\slash", "new\nline", "\x1b[2J"]


class Hostile(asyncssh.SFTPServer):
    """Lists one good file, one good folder, and names that are neither."""

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        file = asyncssh.SFTPAttrs(permissions=0o100644, size=1, mtime=0, atime=0)
        folder = asyncssh.SFTPAttrs(permissions=0o040755, size=0, mtime=0, atime=0)
        if path.rstrip(b"/").endswith(b"good"):
            return
        yield asyncssh.SFTPName(b"file", attrs=file)
        yield asyncssh.SFTPName(b"good", attrs=folder)
        for name in HOSTILE:
            yield asyncssh.SFTPName(name.encode(), attrs=file)
            yield asyncssh.SFTPName(name.encode(), attrs=folder)

    def stat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return asyncssh.SFTPAttrs(permissions=0o040755, size=0, mtime=0, atime=0)


class _Server(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False


@pytest.fixture
def sftp() -> Iterator[Store]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def serve() -> asyncssh.SSHAcceptor:
        key = asyncssh.generate_private_key("ssh-ed25519")
        return await asyncssh.create_server(_Server, "127.0.0.1", 0, server_host_keys=[key], sftp_factory=Hostile)

    async def stop(server: asyncssh.SSHAcceptor) -> None:
        server.close()
        await server.wait_closed()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.wait(tasks, timeout=5) if tasks else None

    server = asyncio.run_coroutine_threadsafe(serve(), loop).result(30)
    backend = Sftp("lake", host="127.0.0.1", port=server.get_port(), username="x", password="y", any_host_key=True)
    yield Store(backend)
    backend.close()
    asyncio.run_coroutine_threadsafe(stop(server), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.mark.req("S-12")
def test_an_sftp_listing_drops_hostile_names(sftp: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "redrive.storage"):
        assert list(sftp.files()) == ["file"]
        assert [info.path for info in sftp.list()] == ["file"]
        assert list(sftp.folders()) == ["good"]
    assert "lake: skipped '../../evil' in a listing" in caplog.text
    assert "\x1b" not in caplog.text


@pytest.mark.req("S-12")
def test_a_graph_listing_drops_hostile_names(caplog: pytest.LogCaptureFixture) -> None:
    with graph_server() as server:
        root = server.drive.root
        server.drive.add(root, "file", b"x")
        server.drive.add(root, "good", None)
        for name in HOSTILE:
            server.drive.add(root, name, b"x")
            server.drive.add(root, f"{name}/" if name else "//", None)
        backend = Graph("drive", drive="drives/d1", token="good", base_url=f"{server.service}/v1.0")
        store = Store(backend)
        with caplog.at_level(logging.WARNING, "redrive.storage"):
            assert list(store.files()) == ["file"]
            assert list(store.folders()) == ["good"]
        backend.close()
    assert "drive: skipped '../../evil' in a listing" in caplog.text


@pytest.mark.req("S-12")
def test_a_local_listing_warns_about_invalid_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("file", "back\\slash", ".redrive-1"):
        (tmp_path / name).write_bytes(b"x")
    with caplog.at_level(logging.WARNING, "redrive.storage"):
        assert list(Store(Local("disk", root=str(tmp_path))).files()) == ["file"]
    assert [record.getMessage().partition(" in a listing")[0] for record in caplog.records] == ["disk: skipped 'back\\\\slash'"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_not_accepted(name: str) -> None:
    assert not ListingFilter("x").accepts_name(name)
    assert name == "a/b" or not ListingFilter("x").accepts_path(name)


def test_a_listing_limits_its_warnings(caplog: pytest.LogCaptureFixture) -> None:
    listing = ListingFilter("x")
    with caplog.at_level(logging.WARNING, "redrive.storage"):
        assert listing.accepted_paths([f"../{number}" for number in range(1000)]) == []
    assert len(caplog.records) == 10
