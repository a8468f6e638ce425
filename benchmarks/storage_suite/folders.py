"""Folders, here and over SFTP: the bare clients, as their users use them."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.storage_suite.pieces import PIECE, drained, pieces


class Folder:
    """Python's own files."""

    def __init__(self, _backend: str, address: str) -> None:
        self.root = Path(address)

    def write(self, path: str, size: int) -> None:
        with (self.root / path).open("wb", buffering=0) as file:
            for piece in pieces(size):
                file.write(piece)

    def read(self, path: str) -> int:
        with (self.root / path).open("rb", buffering=0) as file:
            return drained(file)

    def list(self, folder: str) -> int:
        return len([f"{place}/{name}" for place, _, names in os.walk(self.root / folder) for name in names])


class Ssh:
    """asyncssh, with the ciphers that ours asks for."""

    def __init__(self, _backend: str, address: str) -> None:
        self.told = json.loads(address)
        self.loop = asyncio.new_event_loop()
        self.session = self.loop.run_until_complete(self._connected())

    async def _connected(self) -> Any:
        import asyncssh

        from redrive.storage.sftp.connection import CIPHERS

        told = {name: self.told[name] for name in ("host", "port", "username", "known_hosts")}
        keys = {"client_keys": [self.told["private_key"]]} if "private_key" in self.told else {"password": self.told["password"]}
        self.connection = await asyncssh.connect(**told, **keys, config=None, encryption_algs=CIPHERS)
        return await self.connection.start_sftp_client()

    def _run(self, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
        return self.loop.run_until_complete(work())

    def write(self, path: str, size: int) -> None:
        async def written() -> int:
            async with self.session.open(f"{self.told['root']}/{path}", "wb") as file:
                for piece in pieces(size):
                    await file.write(piece)
            return size

        self._run(written)

    def read(self, path: str) -> int:
        async def found() -> int:
            total = 0
            async with self.session.open(f"{self.told['root']}/{path}", "rb") as file:
                while piece := await file.read(PIECE):
                    total += len(piece)
            return total

        return self._run(found)

    def list(self, folder: str) -> int:
        async def under(path: str) -> int:
            total = 0
            async for entry in self.session.scandir(path):
                if entry.filename in (".", ".."):
                    continue
                total += await under(f"{path}/{entry.filename}") if entry.attrs.permissions & 0o040000 else 1
            return total

        async def all_of_it() -> int:
            whole = f"{self.told['root']}/{folder}"
            return await under(whole) if await self.session.isdir(whole) else 0

        return self._run(all_of_it)
