"""Acts: what is asked of the server, step by step. Runs in the event loop of the connection."""

from __future__ import annotations

import asyncio
import secrets
import stat
from concurrent.futures import Future
from posixpath import dirname
from typing import TYPE_CHECKING

from ..backend import How
from ..extra import client
from ..path import RESERVED

if TYPE_CHECKING:
    import asyncssh


class RootMissing(Exception):
    """The folder in which all files are to be is not there."""


async def regular(session: asyncssh.SFTPClient, path: str) -> asyncssh.SFTPAttrs:
    """What is known of a file; a folder is none."""
    attrs = await session.stat(path)
    if not stat.S_ISREG(attrs.permissions or 0):
        raise client("asyncssh", "sftp").SFTPNoSuchFile("not a file")
    return attrs


async def open_to_read(session: asyncssh.SFTPClient, path: str) -> tuple[asyncssh.SFTPClientFile, int]:
    """The file and its size; some servers open folders too, and fail later."""
    attrs = await regular(session, path)
    return await session.open(path, "rb", encoding=None), attrs.size or 0


async def read(file: asyncssh.SFTPClientFile, size: int, at: int) -> bytes:
    found = await file.read(size, at)
    assert isinstance(found, bytes)  # opened without an encoding
    return found


async def write(file: asyncssh.SFTPClientFile, piece: bytes, at: int) -> None:
    await file.write(piece, at)


async def close(file: asyncssh.SFTPClientFile) -> None:
    await file.close()


async def close_after(file: asyncssh.SFTPClientFile, begun: Future[bytes]) -> None:
    """Once nothing is under way: a request that finds its file closed fails, and asyncssh has nobody to tell."""
    await asyncio.wait((asyncio.wrap_future(begun),))
    await file.close()


async def check_absent(session: asyncssh.SFTPClient, path: str) -> None:
    """A look before anything is sent; whether it is still so at the end is the server's to say."""
    if await session.lexists(path):
        raise client("asyncssh", "sftp").SFTPFileAlreadyExists("already exists")


async def open_beside(session: asyncssh.SFTPClient, root: str, target: str) -> tuple[str, asyncssh.SFTPClientFile]:
    """A file beside the target, to be written; its folders are made where they are missing."""
    temporary = f"{dirname(target)}/{RESERVED}{secrets.token_hex(8)}"
    try:
        return temporary, await session.open(temporary, "xb", encoding=None)
    except client("asyncssh", "sftp").SFTPNoSuchFile:
        await make_folders(session, root, dirname(target))
        return temporary, await session.open(temporary, "xb", encoding=None)


async def make_folders(session: asyncssh.SFTPClient, root: str, folder: str) -> None:
    """The folder and all between it and the root."""
    await check_root(session, root)
    made = root
    for name in folder[len(root) :].strip("/").split("/"):
        made = f"{made}/{name}"
        await _make_folder(session, made)


async def _make_folder(session: asyncssh.SFTPClient, folder: str) -> None:
    module = client("asyncssh", "sftp")
    try:
        await session.mkdir(folder)
    except (module.SFTPFailure, module.SFTPFileAlreadyExists) as error:
        if not await session.isdir(folder):
            raise module.SFTPNotADirectory("a part of it is a file") from error


async def check_root(session: asyncssh.SFTPClient, root: str) -> None:
    if not await session.isdir(root):
        raise RootMissing(root)


async def finish(file: asyncssh.SFTPClientFile, temporary: str, target: str, how: How, session: asyncssh.SFTPClient) -> None:
    """Have the file written out, and give it its name."""
    if how != "replace":
        try:
            await file.fsync()
        except client("asyncssh", "sftp").SFTPOpUnsupported:
            pass  # the server promises nothing about its disk
    await file.close()
    if how == "create":
        await _name_absent(session, temporary, target)
    else:
        await _name(session, temporary, target, how)


async def _name(session: asyncssh.SFTPClient, temporary: str, target: str, how: How) -> None:
    module = client("asyncssh", "sftp")
    try:
        await session.posix_rename(temporary, target)
    except module.SFTPOpUnsupported:
        if how == "atomic":
            raise
        await delete(session, target)
        await session.rename(temporary, target)
    except module.SFTPFailure as error:
        raise await _why(session, target, error) from error


async def _name_absent(session: asyncssh.SFTPClient, temporary: str, target: str) -> None:
    """A second name for the file, which fails where there is one; without links on the server, the name is taken first."""
    module = client("asyncssh", "sftp")
    try:
        try:
            await session.link(temporary, target)
        except module.SFTPOpUnsupported:
            await (await session.open(target, "xb", encoding=None)).close()
            await session.posix_rename(temporary, target)
            return
    except module.SFTPFailure as error:  # the third version of the protocol has no word for "already exists"
        if await session.lexists(target):
            raise module.SFTPFileAlreadyExists("already exists") from error
        raise
    await session.remove(temporary)


async def _why(session: asyncssh.SFTPClient, target: str, error: Exception) -> Exception:
    """The server only says that it failed: was it because of a folder?"""
    if await session.isdir(target):
        found: Exception = client("asyncssh", "sftp").SFTPFileIsADirectory("it is a folder")
        return found
    return error


async def remove(session: asyncssh.SFTPClient, temporary: str, file: asyncssh.SFTPClientFile) -> None:
    """Nothing half-written stays."""
    try:
        await file.close()
    finally:
        await session.remove(temporary)


async def delete(session: asyncssh.SFTPClient, path: str) -> None:
    module = client("asyncssh", "sftp")
    try:
        await session.remove(path)
    except (module.SFTPNoSuchFile, module.SFTPNoSuchPath, module.SFTPNotADirectory):
        pass
    except (module.SFTPFailure, module.SFTPFileIsADirectory, module.SFTPPermissionDenied):
        if not await session.isdir(path):  # a folder is no file, and so there is none
            raise


async def move(session: asyncssh.SFTPClient, root: str, source: str, target: str) -> None:
    module = client("asyncssh", "sftp")
    try:
        await _name(session, source, target, "replace")
    except (module.SFTPNoSuchFile, module.SFTPNoSuchPath):
        await make_folders(session, root, dirname(target))
        await _name(session, source, target, "replace")


async def copy_there(session: asyncssh.SFTPClient, root: str, source: str, target: str) -> bool:
    """Copy on the server; False where it cannot."""
    if not session.supports_remote_copy:
        return False
    temporary, file = await open_beside(session, root, target)
    try:
        async with session.open(source, "rb", encoding=None) as original:
            await session.remote_copy(original, file)
        await finish(file, temporary, target, "replace", session)
    except BaseException:
        await remove(session, temporary, file)
        raise
    return True
