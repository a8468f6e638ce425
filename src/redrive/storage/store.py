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
    """Files under one root of a backend. Threads may share it. A forked child connects again.

    A path has parts separated by `/`, relative to the root: `reports/2026/a.csv`. It cannot leave
    the root. Every error is a `StorageError`. If the source of a write fails, its own error is
    raised and nothing partial remains.

    Args:
        backend: The backend.
        root_path: Folder under which all paths are.
        name: Name in messages. Default: name of the backend.
    """

    def __init__(self, backend: Backend, /, *, root_path: str = "", name: str | None = None) -> None:
        """root_path: a folder of the backend, in which all paths are. name: what it is called (default: as the backend)."""
        self.backend = backend
        self.root_path = folder(root_path, backend=backend.name)
        self.name = backend.name if name is None else name

    @property
    def capabilities(self) -> Capabilities:
        """What the backend guarantees."""
        return self.backend.capabilities

    # ---- one file ----

    def read(self, path: str, /) -> BinaryIO:
        """Open a file for reading, in bounded memory: `with store.read(path) as file:`.

        Args:
            path: The path.

        Returns:
            The open file.

        Raises:
            NotFound: There is no such file.
        """
        return self.backend.read(self.whole(path))

    def read_bytes(self, path: str, /) -> bytes:
        """Read a whole file.

        Args:
            path: The path.

        Returns:
            Its bytes.
        """
        return self.backend.read_bytes(self.whole(path))

    def write(self, path: str, data: Data, /, *, progress: Progress | None = None) -> None:
        """Write a file, and replace the old one. Readers may see a part of it on some backends.

        Args:
            path: The path.
            data: Bytes, an open file, or an iterable of bytes.
            progress: Function that gets the number of bytes just written.
        """
        self._write(path, data, "replace", progress)

    def write_atomic(self, path: str, data: Data, /, *, progress: Progress | None = None) -> None:
        """Write a file so that readers get the old or the new bytes, even after a crash.

        Args:
            path: The path.
            data: Bytes, an open file, or an iterable of bytes.
            progress: Function that gets the number of bytes just written.
        """
        self._write(path, data, "atomic", progress)

    def create(self, path: str, data: Data, /, *, progress: Progress | None = None) -> None:
        """Write a file atomically, only if it does not exist.

        Args:
            path: The path.
            data: Bytes, an open file, or an iterable of bytes.
            progress: Function that gets the number of bytes just written.

        Raises:
            AlreadyExists: The file exists. Nothing was changed.
        """
        self._write(path, data, "create", progress)

    @contextmanager
    def writer(self, path: str, how: How = "atomic", /) -> Iterator[BinaryIO]:
        """Open a file for writing. It exists when the block ends, and not at all if the block raises.

        Up to 8 MiB are kept in memory, more in a temporary file.

        Args:
            path: The path.
            how: `"replace"`, `"atomic"` or `"create"`.

        Yields:
            The open file.
        """
        whole = self.whole(path)
        with SpooledTemporaryFile(SPOOL) as spool:
            yield cast(BinaryIO, spool)
            spool.seek(0)
            self.backend.write(whole, Body(cast(BinaryIO, spool)), how)

    def info(self, path: str, /) -> FileInfo:
        """Return size, time and etag of a file.

        Args:
            path: The path.

        Returns:
            The description.

        Raises:
            NotFound: There is no such file.
        """
        return self._seen(self.backend.info(self.whole(path)))

    def exists(self, path: str, /) -> bool:
        """Return whether there is a file. A folder is not a file.

        Args:
            path: The path.

        Returns:
            True if there is.
        """
        try:
            self.backend.info(self.whole(path))
        except NotFound:
            return False
        return True

    def delete(self, path: str, /) -> None:
        """Delete a file. A missing file is not an error.

        Args:
            path: The path.
        """
        self.backend.delete(self.whole(path))

    def move(self, source: str, target: str, /) -> None:
        """Move a file, and replace the target.

        Args:
            source: Path of the file.
            target: The new path.
        """
        self._pair(source, target, self.backend.move)

    def copy(self, source: str, target: str, /) -> None:
        """Copy a file within the store, and replace the target. Use `transfer` between stores.

        Args:
            source: Path of the file.
            target: Path of the copy.
        """
        self._pair(source, target, self.backend.copy)

    # ---- many files ----

    def files(self, path: str = "", /, *, recursive: bool = True) -> Iterator[str]:
        """List the paths of files, in no order. A missing folder is empty.

        Args:
            path: The folder.
            recursive: Include folders below.

        Returns:
            The paths.
        """
        whole = self._folder(path)
        cut = len(self.root_path) + 1 if self.root_path else 0
        quick = getattr(self.backend, "paths", None)  # where sizes and times cost extra
        if quick is not None:
            found: Iterator[str] = quick(whole, recursive=recursive)
            return (path[cut:] for path in found) if cut else found
        return (info.path[cut:] for info in self.backend.files(whole, recursive=recursive))

    def list(self, path: str = "", /, *, recursive: bool = True) -> Iterator[FileInfo]:
        """List files with sizes and times, in no order.

        Args:
            path: The folder.
            recursive: Include folders below.

        Returns:
            The files.
        """
        found = self.backend.files(self._folder(path), recursive=recursive)
        return (self._seen(info) for info in found) if self.root_path else found

    def folders(self, path: str = "", /) -> Iterator[str]:
        """List the folders in a folder, one level, in no order.

        Args:
            path: The folder.

        Returns:
            The paths.
        """
        cut = len(self.root_path) + 1 if self.root_path else 0
        return (found[cut:] for found in self.backend.folders(self._folder(path)))

    # ---- the store ----

    def check(self) -> None:
        """Check that the storage can be reached and its container exists.

        Raises:
            StorageError: It says what is wrong.
        """
        self.backend.check()

    def __repr__(self) -> str:
        where = f"{self.backend.name}/{self.root_path}" if self.root_path else self.backend.name
        return f"<Store {self.name}: {where}>"

    def whole(self, path: str, /) -> str:
        """Return the path within the backend.

        Args:
            path: A path of this store.

        Returns:
            The complete path.

        Raises:
            PathInvalid: It is not a valid path.
        """
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
