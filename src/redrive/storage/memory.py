"""Memory: files in a dict, for tests and examples."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import BinaryIO

from ..core.clock import SYSTEM, Clock
from .backend import Capabilities, FileInfo, How
from .body import Body
from .errors import file_exists, file_not_found


class Memory:
    """Files in the memory of a process. Threads may share it. A forked child has its own copy."""

    capabilities = Capabilities(
        atomic_write=True,
        exclusive_create=True,
        atomic_move=True,
        native_copy=True,
        empty_folders=False,
    )

    def __init__(self, name: str = "memory", /, *, clock: Clock = SYSTEM) -> None:
        self.name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._files: dict[str, tuple[bytes, datetime]] = {}

    def read(self, path: str, /) -> BinaryIO:
        return io.BytesIO(self.read_bytes(path))

    def read_bytes(self, path: str, /) -> bytes:
        return self._load(path)[0]

    def write(self, path: str, body: Body, how: How, /) -> None:
        if how == "create" and path in self._files:
            raise file_exists(path, self.name)  # Before the source is read for nothing.
        data = body.read()
        with self._lock:
            if how == "create" and path in self._files:
                raise file_exists(path, self.name)
            self._files[path] = data, self._clock.now()

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        prefix = f"{folder}/" if folder else ""
        for path, (data, modified_at) in list(self._files.items()):
            if path.startswith(prefix) and (recursive or "/" not in path[len(prefix) :]):
                yield _file_info(path, data, modified_at)

    def folders(self, folder: str, /) -> Iterator[str]:
        prefix = f"{folder}/" if folder else ""
        below = [path[len(prefix) :] for path in list(self._files) if path.startswith(prefix)]
        names = (path.partition("/")[0] for path in below if "/" in path)
        yield from dict.fromkeys(prefix + name for name in names)

    def info(self, path: str, /) -> FileInfo:
        return _file_info(path, *self._load(path))

    def delete(self, path: str, /) -> None:
        with self._lock:
            self._files.pop(path, None)

    def move(self, source: str, target: str, /) -> None:
        with self._lock:
            self._files[target] = self._load(source)
            del self._files[source]

    def copy(self, source: str, target: str, /) -> None:
        with self._lock:
            self._files[target] = self._load(source)[0], self._clock.now()

    def check(self) -> None:
        """Do nothing: memory is always available."""

    def close(self) -> None:
        """Do nothing: no connections are open, and the files stay."""

    def _load(self, path: str) -> tuple[bytes, datetime]:
        try:
            return self._files[path]
        except KeyError:
            raise file_not_found(path, self.name) from None


def _file_info(path: str, data: bytes, modified_at: datetime) -> FileInfo:
    return FileInfo(path, len(data), modified_at, hashlib.sha256(data).hexdigest()[:32])
