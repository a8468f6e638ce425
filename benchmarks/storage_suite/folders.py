"""Bare clients for local folders and SFTP, with typical code."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.storage_suite.chunks import CHUNK, chunks, read_all


class Folder:
    """Files of the standard library."""

    def __init__(self, _backend: str, address: str) -> None:
        self.root = Path(address)

    def write(self, path: str, size: int) -> None:
        with (self.root / path).open("wb", buffering=0) as file:
            for chunk in chunks(size):
                file.write(chunk)

    def read(self, path: str) -> int:
        with (self.root / path).open("rb", buffering=0) as file:
            return read_all(file)

    def list(self, folder: str) -> int:
        return len([f"{directory}/{name}" for directory, _, names in os.walk(self.root / folder) for name in names])


class Ssh:
    """asyncssh, with the ciphers of Redrive."""

    def __init__(self, _backend: str, address: str) -> None:
        self.options = json.loads(address)
        self.loop = asyncio.new_event_loop()
        self.session = self.loop.run_until_complete(self._connect())

    async def _connect(self) -> Any:
        import asyncssh

        from redrive.storage.sftp.connection import CIPHERS

        options = {name: self.options[name] for name in ("host", "port", "username", "known_hosts")}
        keys = (
            {"client_keys": [self.options["private_key"]]}
            if "private_key" in self.options
            else {"password": self.options["password"]}
        )
        self.connection = await asyncssh.connect(**options, **keys, config=None, encryption_algs=CIPHERS)
        return await self.connection.start_sftp_client()

    def _run(self, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
        return self.loop.run_until_complete(work())

    def write(self, path: str, size: int) -> None:
        async def write() -> int:
            async with self.session.open(f"{self.options['root']}/{path}", "wb") as file:
                for chunk in chunks(size):
                    await file.write(chunk)
            return size

        self._run(write)

    def read(self, path: str) -> int:
        async def read() -> int:
            total = 0
            async with self.session.open(f"{self.options['root']}/{path}", "rb") as file:
                while chunk := await file.read(CHUNK):
                    total += len(chunk)
            return total

        return self._run(read)

    def list(self, folder: str) -> int:
        async def count_files(path: str) -> int:
            total = 0
            async for entry in self.session.scandir(path):
                if entry.filename in (".", ".."):
                    continue
                total += await count_files(f"{path}/{entry.filename}") if entry.attrs.permissions & 0o040000 else 1
            return total

        async def count_all() -> int:
            path = f"{self.options['root']}/{folder}"
            return await count_files(path) if await self.session.isdir(path) else 0

        return self._run(count_all)
