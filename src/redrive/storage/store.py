"""Store: files under one root of a backend. Programs read and write through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast

from ..errors import NotFound, PathInvalid
from .backend import Backend, Capabilities, FileInfo, How, import_client
from .body import Body, Data, Progress
from .path import MAX_PATH_BYTES, check_folder, check_path, join_path

SPOOL_BYTES = 8 * 1024 * 1024
"""Bytes that `writer` keeps in memory. More go to a temporary file."""


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

    def __init__(
        self, backend: Backend, /, *, root_path: str = "", name: str | None = None
    ) -> None:
        self.backend = backend
        self.root_path = check_folder(root_path, backend=backend.name)
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
            NotFound: The file does not exist.
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
        """Open a file for writing. It exists when the block ends, unless the block raises.

        Up to 8 MiB are kept in memory, more in a temporary file.

        Args:
            path: The path.
            how: `"replace"`, `"atomic"` or `"create"`.

        Yields:
            The open file.
        """
        whole = self.whole(path)
        with SpooledTemporaryFile(SPOOL_BYTES) as spool:
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
            NotFound: The file does not exist.
        """
        return self._relative(self.backend.info(self.whole(path)))

    def exists(self, path: str, /) -> bool:
        """Return whether a file exists. A folder is not a file.

        Args:
            path: The path.

        Returns:
            True if it exists.
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
        self._apply_to_pair(source, target, self.backend.move)

    def copy(self, source: str, target: str, /) -> None:
        """Copy a file within the store, and replace the target. Use `transfer` between stores.

        Args:
            source: Path of the file.
            target: Path of the copy.
        """
        self._apply_to_pair(source, target, self.backend.copy)

    # ---- many files ----

    def files(self, path: str = "", /, *, recursive: bool = True) -> Iterator[str]:
        """List the paths of files, in no order. A missing folder is empty.

        Args:
            path: The folder.
            recursive: Include folders below.

        Returns:
            The paths.
        """
        folder = self._whole_folder(path)
        cut = self._prefix_length
        list_paths = getattr(self.backend, "paths", None)  # Faster, without sizes and times.
        if list_paths is not None:
            paths: Iterator[str] = list_paths(folder, recursive=recursive)
            return (path[cut:] for path in paths) if cut else paths
        return (info.path[cut:] for info in self.backend.files(folder, recursive=recursive))

    def list(self, path: str = "", /, *, recursive: bool = True) -> Iterator[FileInfo]:
        """List files with sizes and times, in no order.

        Args:
            path: The folder.
            recursive: Include folders below.

        Returns:
            The files.
        """
        infos = self.backend.files(self._whole_folder(path), recursive=recursive)
        return (self._relative(info) for info in infos) if self.root_path else infos

    def folders(self, path: str = "", /) -> Iterator[str]:
        """List the folders in a folder, one level, in no order.

        Args:
            path: The folder.

        Returns:
            The paths.
        """
        cut = self._prefix_length
        return (folder[cut:] for folder in self.backend.folders(self._whole_folder(path)))

    # ---- the store ----

    def check(self) -> None:
        """Check that the storage can be reached and its container exists.

        Raises:
            StorageError: The message names the problem.
        """
        self.backend.check()

    def fsspec(self, *, read_only: bool = False) -> Any:
        """Return a view of this store as a file system of fsspec, for libraries that take one.

        Args:
            read_only: Reject every change with PermissionError.

        Returns:
            An `fsspec.AbstractFileSystem`.

        Raises:
            ImportError: fsspec is not installed. The message says how to install it.
        """
        import_client("fsspec", "fsspec")
        # By name: the view needs fsspec, and its module imports this one.
        view_class = import_module("redrive.storage.filesystem").StoreFileSystem
        return view_class(self, read_only=read_only)

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
        check_path(path, backend=self.backend.name)
        whole = join_path(self.root_path, path)
        if len(whole.encode()) > MAX_PATH_BYTES:
            problem = f"is longer than {MAX_PATH_BYTES:,} bytes"
            message = f"{path!r} under the root {self.root_path!r} {problem}"
            raise PathInvalid(message, path=path, backend=self.backend.name)
        return whole

    @property
    def _prefix_length(self) -> int:
        """Characters before a path of this store in a path of the backend."""
        return len(self.root_path) + 1 if self.root_path else 0

    def _whole_folder(self, path: str) -> str:
        return self.whole(path) if path else self.root_path

    def _relative(self, info: FileInfo) -> FileInfo:
        """Return the same file with its path in this store."""
        if not self.root_path:
            return info
        path = info.path[len(self.root_path) + 1 :]
        return FileInfo(path, info.size, info.modified_at, info.etag)

    def _write(self, path: str, data: Data, how: How, progress: Progress | None) -> None:
        whole = self.whole(path)
        body = Body(data, progress)
        try:
            self.backend.write(whole, body, how)
        except Exception as error:
            if body.failure is not None and body.failure is not error:
                # The source's own error, not the error that the backend made of it.
                raise body.failure from None
            raise

    def _apply_to_pair(
        self, source: str, target: str, operation: Callable[[str, str], None]
    ) -> None:
        whole_source, whole_target = self.whole(source), self.whole(target)
        if whole_source == whole_target:
            self.backend.info(whole_source)  # Nothing to do, but a missing file is an error.
        else:
            operation(whole_source, whole_target)


def transfer(
    source: Store,
    path: str,
    target: Store,
    to: str | None = None,
    /,
    *,
    how: How = "atomic",
    progress: Progress | None = None,
) -> None:
    """Copy a file between two stores. Within one backend, its own copy is used.

    Args:
        source: Store of the file.
        path: Its path.
        target: Store of the copy.
        to: Path of the copy. Default: the same.
        how: `"replace"`, `"atomic"` or `"create"`.
        progress: Function that gets the number of bytes just copied.
    """
    to = path if to is None else to
    is_same_backend = source.backend is target.backend
    if is_same_backend and how != "create" and source.capabilities.native_copy:
        size = source.info(path).size
        Store(source.backend).copy(source.whole(path), target.whole(to))
        if progress is not None:
            progress(size)
        return
    write = {"replace": target.write, "atomic": target.write_atomic, "create": target.create}[how]
    with source.read(path) as file:
        write(to, file, progress=progress)
