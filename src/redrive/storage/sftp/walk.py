"""Walk: what is in folders of the server, several of them asked for side by side. Runs in the event loop of the connection."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, TypeAlias

from ..extra import client
from ..skipped import Skipped
from .act import check_root

if TYPE_CHECKING:
    import asyncssh

Entry: TypeAlias = "tuple[str, asyncssh.SFTPAttrs]"
WIDTH = 8
"""Folders that are read at a time."""
STEP = 500
"""Entries taken from each of them in turn, so that a large one keeps nobody waiting."""


class Walk:
    """The entries of a folder, or of all beneath it, page by page. For one listing, and not shared."""

    def __init__(self, session: asyncssh.SFTPClient, root: str, folder: str, name: str, *, recursive: bool) -> None:
        self._skipped = Skipped(name)
        self._session = session
        self._root = root
        self._recursive = recursive
        self._first = True
        self._waiting = [folder]
        self._open: list[tuple[str, AsyncIterator[asyncssh.SFTPName]]] = []

    async def page(self, most: int) -> list[Entry]:
        """The next ones, with their whole paths; about so many, and none at the end."""
        found: list[Entry] = []
        if self._first:
            self._first = False
            if not await self._is_there(self._waiting[0]):
                self._waiting.clear()
        while len(found) < most and (self._waiting or self._open):
            while self._waiting and len(self._open) < WIDTH:
                folder = self._waiting.pop()
                self._open.append((folder, self._session.scandir(self._whole(folder))))
            taken = await asyncio.gather(*(_taken(entries) for _, entries in self._open))
            still = []
            for (folder, entries), (names, ended) in zip(self._open, taken, strict=True):
                found += self._kept(folder, names)
                if not ended:
                    still.append((folder, entries))
            self._open = still
        return found

    async def _is_there(self, folder: str) -> bool:
        """One that is missing is empty, unless it is the root."""
        if await self._session.isdir(self._whole(folder)):
            return True
        await check_root(self._session, self._root)
        return False

    def _whole(self, folder: str) -> str:
        return f"{self._root}/{folder}" if folder else self._root

    def _kept(self, folder: str, entries: list[asyncssh.SFTPName]) -> list[Entry]:
        start = f"{folder}/" if folder else ""
        kept = []
        for entry in entries:
            name = str(entry.filename)
            if name in (".", "..") or not self._skipped.is_name(name):
                continue
            kept.append((start + name, entry.attrs))
            if self._recursive and stat.S_ISDIR(entry.attrs.permissions or 0):
                self._waiting.append(start + name)
        return kept


async def _taken(entries: AsyncIterator[asyncssh.SFTPName]) -> tuple[list[asyncssh.SFTPName], bool]:
    """The next entries of a folder, and whether these were the last."""
    found: list[asyncssh.SFTPName] = []
    try:
        async for entry in entries:
            found.append(entry)
            if len(found) == STEP:
                return found, False
    except client("asyncssh", "sftp").SFTPNoSuchFile:
        pass  # gone since it was listed
    return found, True
