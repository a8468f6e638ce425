"""Memory: files in a dict, for tests and for trying things out."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import BinaryIO

from ..core.clock import SYSTEM, Clock
from ..errors import AlreadyExists, NotFound
from .backend import How
from .body import Body
from .info import Capabilities, FileInfo


class Memory:
    """Files that are gone with the process. Threads may share it; a forked child has a copy of its own."""

    capabilities = Capabilities(atomic_write=True, exclusive_create=True, atomic_move=True, native_copy=True, empty_folders=False)

    def __init__(self, name: str = "memory", /, *, clock: Clock = SYSTEM) -> None:
        self.name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._files: dict[str, tuple[bytes, datetime]] = {}

    def read(self, path: str, /) -> BinaryIO:
        return io.BytesIO(self.read_bytes(path))

    def read_bytes(self, path: str, /) -> bytes:
        return self._found(path)[0]

    def write(self, path: str, body: Body, how: How, /) -> None:
        if how == "create" and path in self._files:
            raise self._there(path)  # before the source is read: a generator is not run for nothing
        data = body.read()
        with self._lock:
            if how == "create" and path in self._files:
                raise self._there(path)
            self._files[path] = data, self._clock.now()

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        start = f"{folder}/" if folder else ""
        for path, (data, at) in list(self._files.items()):
            if path.startswith(start) and (recursive or "/" not in path[len(start) :]):
                yield _info(path, data, at)

    def folders(self, folder: str, /) -> Iterator[str]:
        start = f"{folder}/" if folder else ""
        rests = [path[len(start) :] for path in list(self._files) if path.startswith(start)]
        yield from dict.fromkeys(start + rest.partition("/")[0] for rest in rests if "/" in rest)

    def info(self, path: str, /) -> FileInfo:
        return _info(path, *self._found(path))

    def delete(self, path: str, /) -> None:
        with self._lock:
            self._files.pop(path, None)

    def move(self, source: str, target: str, /) -> None:
        with self._lock:
            self._files[target] = self._found(source)
            del self._files[source]

    def copy(self, source: str, target: str, /) -> None:
        with self._lock:
            self._files[target] = self._found(source)[0], self._clock.now()

    def check(self) -> None:
        """It is always there."""

    def close(self) -> None:
        """Nothing is open, and the files stay."""

    def _found(self, path: str) -> tuple[bytes, datetime]:
        try:
            return self._files[path]
        except KeyError:
            raise NotFound(f"{self.name}: file {path!r} not found", path=path, backend=self.name) from None

    def _there(self, path: str) -> AlreadyExists:
        return AlreadyExists(f"{self.name}: file {path!r} already exists", path=path, backend=self.name)


def _info(path: str, data: bytes, at: datetime) -> FileInfo:
    return FileInfo(path, len(data), at, hashlib.sha256(data).hexdigest()[:32])
