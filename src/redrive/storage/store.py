"""Store: files under one root of one backend. What programs hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

from ..errors import NotFound, PathInvalid
from .backend import Backend, How
from .body import Body, Data, Progress
from .info import Capabilities, FileInfo
from .path import LONGEST, checked, folder, joined

SPOOL = 8 * 1024 * 1024
"""Bytes that `writer` keeps in memory; what is beyond goes to a temporary file."""


class Store:
    """Files under one root of one backend. Threads may share it; a forked child connects anew.

    A file has a path, `reports/2026/a.csv`: parts with `/` between them, counted from the root, which no path can leave. Every
    error is a StorageError; a source that fails while it is written from raises its own, and nothing half-written stays.
    """

    def __init__(self, backend: Backend, /, *, root_path: str = "", name: str | None = None) -> None:
        """root_path: a folder of the backend, in which all paths are. name: what it is called (default: as the backend)."""
        self.backend = backend
        self.root_path = folder(root_path, backend=backend.name)
        self.name = backend.name if name is None else name

    @property
    def capabilities(self) -> Capabilities:
        """What the backend can promise."""
        return self.backend.capabilities

    # ---- one file ----

    def read(self, path: str, /) -> BinaryIO:
        """The file, open for reading: `with store.read(path) as file:`. In bounded memory, however large it is."""
        return self.backend.read(self.whole(path))

    def read_bytes(self, path: str, /) -> bytes:
        """The whole file."""
        return self.backend.read_bytes(self.whole(path))

    def write(self, path: str, data: Data, /, *, progress: Progress | None = None) -> None:
        """Write a file, in place of what was there. A reader may see a part of it, where the backend cannot do better."""
        self._write(path, data, "replace", progress)

    def write_atomic(self, path: str, data: Data, /, *, progress: Progress | None = None) -> None:
        """Write a file so that readers get the old bytes or the new ones, and a crash leaves one or the other."""
        self._write(path, data, "atomic", progress)

    def create(self, path: str, data: Data, /, *, progress: Progress | None = None) -> None:
        """Write a file, atomically, only if nothing is there; else AlreadyExists, and nothing has changed."""
        self._write(path, data, "create", progress)

    @contextmanager
    def writer(self, path: str, how: How = "atomic", /) -> Iterator[BinaryIO]:
        """A file to write into, for code that pushes: it appears when the block ends, and not at all if the block raises.

        how: "replace", "atomic" or "create". Up to 8 MiB stay in memory, more in a temporary file.
        """
        whole = self.whole(path)
        with SpooledTemporaryFile(SPOOL) as spool:
            yield cast(BinaryIO, spool)
            spool.seek(0)
            self.backend.write(whole, Body(cast(BinaryIO, spool)), how)

    def info(self, path: str, /) -> FileInfo:
        """Size, time and etag of a file; NotFound where there is none."""
        return self._seen(self.backend.info(self.whole(path)))

    def exists(self, path: str, /) -> bool:
        """Is there a file? (A folder is none.)"""
        try:
            self.backend.info(self.whole(path))
        except NotFound:
            return False
        return True

    def delete(self, path: str, /) -> None:
        """The file is gone afterwards; also where there was none, so that it can be tried again."""
        self.backend.delete(self.whole(path))

    def move(self, source: str, target: str, /) -> None:
        """What is at source is at target, in place of what was there."""
        self._pair(source, target, self.backend.move)

    def copy(self, source: str, target: str, /) -> None:
        """What is at source is at target too, in place of what was there. Between stores: `transfer`."""
        self._pair(source, target, self.backend.copy)

    # ---- many files ----

    def files(self, path: str = "", /, *, recursive: bool = True) -> Iterator[str]:
        """The paths of the files in a folder and all folders beneath it, in no order; nothing where it is missing."""
        whole = self._folder(path)
        cut = len(self.root_path) + 1 if self.root_path else 0
        quick = getattr(self.backend, "paths", None)  # where sizes and times cost extra
        if quick is not None:
            found: Iterator[str] = quick(whole, recursive=recursive)
            return (path[cut:] for path in found) if cut else found
        return (info.path[cut:] for info in self.backend.files(whole, recursive=recursive))

    def list(self, path: str = "", /, *, recursive: bool = True) -> Iterator[FileInfo]:
        """The same with sizes and times."""
        found = self.backend.files(self._folder(path), recursive=recursive)
        return (self._seen(info) for info in found) if self.root_path else found

    def folders(self, path: str = "", /) -> Iterator[str]:
        """The paths of the folders in a folder, one level, in no order."""
        cut = len(self.root_path) + 1 if self.root_path else 0
        return (found[cut:] for found in self.backend.folders(self._folder(path)))

    # ---- the store ----

    def check(self) -> None:
        """Can it be reached, and is its container there? A StorageError says what is wrong."""
        self.backend.check()

    def __repr__(self) -> str:
        where = f"{self.backend.name}/{self.root_path}" if self.root_path else self.backend.name
        return f"<Store {self.name}: {where}>"

    def whole(self, path: str, /) -> str:
        """The path within the backend, the root in front; PathInvalid where it is none."""
        checked(path, backend=self.backend.name)
        whole = joined(self.root_path, path)
        if len(whole.encode()) > LONGEST:
            long = f"{path!r} under the root {self.root_path!r} is longer than {LONGEST:,} bytes"
            raise PathInvalid(long, path=path, backend=self.backend.name)
        return whole

    def _folder(self, path: str) -> str:
        return self.whole(path) if path else self.root_path

    def _seen(self, info: FileInfo) -> FileInfo:
        if not self.root_path:
            return info
        return FileInfo(info.path[len(self.root_path) + 1 :], info.size, info.modified_at, info.etag)

    def _write(self, path: str, data: Data, how: How, progress: Progress | None) -> None:
        whole = self.whole(path)
        body = Body(data, progress)
        try:
            self.backend.write(whole, body, how)
        except Exception as error:
            if body.failure is not None and body.failure is not error:
                raise body.failure from None  # the source's own word, not what the backend made of it
            raise

    def _pair(self, source: str, target: str, act: Callable[[str, str], None]) -> None:
        from_, to = self.whole(source), self.whole(target)
        if from_ == to:
            self.backend.info(from_)  # nothing to do, but it must be there
        else:
            act(from_, to)
