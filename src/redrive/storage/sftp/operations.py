"""Operations on the server, step by step. They run in the event loop of the connection."""

from __future__ import annotations

import asyncio
import secrets
import stat
from collections.abc import AsyncIterator
from concurrent.futures import Future
from posixpath import dirname
from typing import TYPE_CHECKING, TypeAlias

from ..backend import How, import_client
from ..path import TEMPORARY_PREFIX, ListingFilter

if TYPE_CHECKING:
    import asyncssh

Entry: TypeAlias = "tuple[str, asyncssh.SFTPAttrs]"
FOLDERS_AT_ONCE = 8
"""Folders that a listing reads at a time."""
ENTRIES_PER_TURN = 500
"""Entries taken from each of these folders in turn, so that a large one does not block others."""


class RootMissing(Exception):
    """The root folder of the backend does not exist on the server."""


# ---- reading ----


async def stat_file(session: asyncssh.SFTPClient, path: str) -> asyncssh.SFTPAttrs:
    """Return the attributes of a file. A folder is not a file."""
    attributes = await session.stat(path)
    if not stat.S_ISREG(attributes.permissions or 0):
        raise import_client("asyncssh", "sftp").SFTPNoSuchFile("not a file")
    return attributes


async def open_for_reading(
    session: asyncssh.SFTPClient, path: str
) -> tuple[asyncssh.SFTPClientFile, int]:
    """Open a file, and return it with its size.

    Checks the type first: some servers open folders too, and fail later.
    """
    attributes = await stat_file(session, path)
    return await session.open(path, "rb", encoding=None), attributes.size or 0


async def read(file: asyncssh.SFTPClientFile, size: int, position: int) -> bytes:
    data = await file.read(size, position)
    assert isinstance(data, bytes)  # The file was opened without an encoding.
    return data


async def close_after(file: asyncssh.SFTPClientFile, pending: Future[bytes]) -> None:
    """Close a file when a pending read ends.

    A read of a closed file fails, and asyncssh logs an error that no caller gets.
    """
    read = asyncio.wrap_future(pending)
    # `wait` does not retrieve the error of a read on a lost connection, and asyncio would log it.
    read.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    await asyncio.wait((read,))
    await file.close()


# ---- writing ----


async def check_absent(session: asyncssh.SFTPClient, path: str) -> None:
    """Raise if the file exists. The server checks again when the file gets its name."""
    if await session.lexists(path):
        raise import_client("asyncssh", "sftp").SFTPFileAlreadyExists("already exists")


async def open_temporary(
    session: asyncssh.SFTPClient, root: str, target: str
) -> tuple[str, asyncssh.SFTPClientFile]:
    """Open a temporary file next to the target. Create the folders of the target if needed."""
    temporary = f"{dirname(target)}/{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        return temporary, await session.open(temporary, "xb", encoding=None)
    except import_client("asyncssh", "sftp").SFTPNoSuchFile:
        await make_folders(session, root, dirname(target))
        return temporary, await session.open(temporary, "xb", encoding=None)


async def make_folders(session: asyncssh.SFTPClient, root: str, folder: str) -> None:
    """Create a folder and all folders between it and the root."""
    await check_root(session, root)
    path = root
    for name in folder[len(root) :].strip("/").split("/"):
        path = f"{path}/{name}"
        await _make_folder(session, path)


async def _make_folder(session: asyncssh.SFTPClient, folder: str) -> None:
    asyncssh = import_client("asyncssh", "sftp")
    try:
        await session.mkdir(folder)
    except (asyncssh.SFTPFailure, asyncssh.SFTPFileAlreadyExists) as error:
        if not await session.isdir(folder):
            raise asyncssh.SFTPNotADirectory("a part of it is a file") from error


async def check_root(session: asyncssh.SFTPClient, root: str) -> None:
    if not await session.isdir(root):
        raise RootMissing(root)


async def finish_write(
    session: asyncssh.SFTPClient,
    file: asyncssh.SFTPClientFile,
    temporary: str,
    target: str,
    how: How,
) -> None:
    """Sync and close the temporary file, and rename it to the target."""
    if how != "replace":
        try:
            await file.fsync()
        except import_client("asyncssh", "sftp").SFTPOpUnsupported:
            pass  # The server has no extension for it.
    await file.close()
    if how == "create":
        await _rename_if_absent(session, temporary, target)
    else:
        await _rename(session, temporary, target, how)


async def _rename(session: asyncssh.SFTPClient, temporary: str, target: str, how: How) -> None:
    asyncssh = import_client("asyncssh", "sftp")
    try:
        await session.posix_rename(temporary, target)
    except asyncssh.SFTPOpUnsupported:
        if how == "atomic":
            raise
        await delete(session, target)
        await session.rename(temporary, target)
    except asyncssh.SFTPFailure as error:
        # The server gives no reason. A folder at the target is a common one.
        if await session.isdir(target):
            raise asyncssh.SFTPFileIsADirectory("it is a folder") from error
        raise


async def _rename_if_absent(session: asyncssh.SFTPClient, temporary: str, target: str) -> None:
    """Rename with a hard link, which fails if the target exists, or create the target first."""
    asyncssh = import_client("asyncssh", "sftp")
    try:
        try:
            await session.link(temporary, target)
        except asyncssh.SFTPOpUnsupported:
            await (await session.open(target, "xb", encoding=None)).close()
            await session.posix_rename(temporary, target)
            return
    except asyncssh.SFTPFailure as error:
        # Version 3 of the protocol has no error code for an existing file.
        if await session.lexists(target):
            raise asyncssh.SFTPFileAlreadyExists("already exists") from error
        raise
    await session.remove(temporary)


async def remove_temporary(
    session: asyncssh.SFTPClient, temporary: str, file: asyncssh.SFTPClientFile
) -> None:
    try:
        await file.close()
    finally:
        await session.remove(temporary)


# ---- other operations on files ----


async def delete(session: asyncssh.SFTPClient, path: str) -> None:
    """Delete a file. A missing file and a folder are not errors."""
    asyncssh = import_client("asyncssh", "sftp")
    try:
        await session.remove(path)
    except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath, asyncssh.SFTPNotADirectory):
        pass
    except (asyncssh.SFTPFailure, asyncssh.SFTPFileIsADirectory, asyncssh.SFTPPermissionDenied):
        if not await session.isdir(path):
            raise


async def move(session: asyncssh.SFTPClient, root: str, source: str, target: str) -> None:
    asyncssh = import_client("asyncssh", "sftp")
    try:
        await _rename(session, source, target, "replace")
    except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
        await make_folders(session, root, dirname(target))
        await _rename(session, source, target, "replace")


async def copy_on_server(session: asyncssh.SFTPClient, root: str, source: str, target: str) -> bool:
    """Copy a file without transferring it. Return False if the server cannot do that."""
    if not session.supports_remote_copy:
        return False
    temporary, file = await open_temporary(session, root, target)
    try:
        async with session.open(source, "rb", encoding=None) as original:
            await session.remote_copy(original, file)
        await finish_write(session, file, temporary, target, "replace")
    except BaseException:
        await remove_temporary(session, temporary, file)
        raise
    return True


# ---- listing ----


class FolderWalk:
    """Lists a folder in pages. It reads several folders at the same time. For one listing."""

    def __init__(
        self, session: asyncssh.SFTPClient, root: str, folder: str, backend: str, *, recursive: bool
    ) -> None:
        self._listing = ListingFilter(backend)
        self._session = session
        self._root = root
        self._recursive = recursive
        self._has_started = False
        self._pending = [folder]
        self._open: list[tuple[str, AsyncIterator[asyncssh.SFTPName]]] = []

    async def next_page(self, size: int) -> list[Entry]:
        """Return about this number of entries with complete paths. Empty at the end."""
        page: list[Entry] = []
        if not self._has_started:
            self._has_started = True
            if not await self._folder_exists(self._pending[0]):
                self._pending.clear()
        while len(page) < size and (self._pending or self._open):
            while self._pending and len(self._open) < FOLDERS_AT_ONCE:
                folder = self._pending.pop()
                self._open.append((folder, self._session.scandir(self._complete(folder))))
            turns = await asyncio.gather(*(_take_entries(entries) for _, entries in self._open))
            still_open = []
            for (folder, entries), (taken, is_exhausted) in zip(self._open, turns, strict=True):
                page += self._accept(folder, taken)
                if not is_exhausted:
                    still_open.append((folder, entries))
            self._open = still_open
        return page

    async def _folder_exists(self, folder: str) -> bool:
        """Return whether the folder exists. A missing folder is empty, a missing root an error."""
        if await self._session.isdir(self._complete(folder)):
            return True
        await check_root(self._session, self._root)
        return False

    def _complete(self, folder: str) -> str:
        return f"{self._root}/{folder}" if folder else self._root

    def _accept(self, folder: str, entries: list[asyncssh.SFTPName]) -> list[Entry]:
        prefix = f"{folder}/" if folder else ""
        accepted = []
        for entry in entries:
            name = str(entry.filename)
            if name in (".", "..") or not self._listing.accepts_name(name):
                continue
            accepted.append((prefix + name, entry.attrs))
            if self._recursive and stat.S_ISDIR(entry.attrs.permissions or 0):
                self._pending.append(prefix + name)
        return accepted


async def start_walk(
    session: asyncssh.SFTPClient, root: str, folder: str, backend: str, recursive: bool
) -> FolderWalk:
    return FolderWalk(session, root, folder, backend, recursive=recursive)


async def _take_entries(
    entries: AsyncIterator[asyncssh.SFTPName],
) -> tuple[list[asyncssh.SFTPName], bool]:
    """Return the next entries of a folder, and whether these were the last."""
    taken: list[asyncssh.SFTPName] = []
    try:
        async for entry in entries:
            taken.append(entry)
            if len(taken) == ENTRIES_PER_TURN:
                return taken, False
    except import_client("asyncssh", "sftp").SFTPNoSuchFile:
        pass  # Deleted since its parent was listed.
    return taken, True
