"""StoreFileSystem: a store as a file system of fsspec, for libraries that take one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

from fsspec import AbstractFileSystem

from ..errors import AlreadyExists, Denied, NotFound, StorageError
from .backend import FileInfo, How
from .store import SPOOL_BYTES, Store

HOW_BY_MODE: dict[str, How] = {"wb": "atomic", "xb": "create"}
PROTOCOL = "redrive"


class StoreFileSystem(AbstractFileSystem):  # type: ignore[misc]  # published without types
    """The files of a store, for fsspec. Threads may share it.

    Paths are those of the store. A file that is opened for writing appears when it is closed, and
    not if its `with` block raises. Errors are those of `open`, such as FileNotFoundError, where
    Python has one. It has no cache of listings, and cannot be pickled.

    Args:
        store: The store.
        read_only: Reject every change with PermissionError.
    """

    protocol = PROTOCOL
    cachable = False
    root_marker = ""

    def __init__(self, store: Store, *, read_only: bool = False) -> None:
        super().__init__(use_listings_cache=False)
        self.store = store
        self.read_only = read_only

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(item) for item in path]
        return str(path).removeprefix(f"{PROTOCOL}://").strip("/")

    def __reduce__(self) -> Any:
        raise TypeError("a view of a store cannot be pickled: create one in each process")

    # ---- reading ----

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        """List a folder, or describe a file. Raise FileNotFoundError if there is neither."""
        folder = self._strip_protocol(path)
        with _os_errors(folder):
            entries = [_file_entry(info) for info in self.store.list(folder, recursive=False)]
            entries += [_folder_entry(name) for name in self.store.folders(folder)]
            if not entries and folder:
                entries = [self._describe(folder)]
                if entries[0]["type"] == "directory":
                    entries = []
        entries.sort(key=lambda entry: entry["name"])
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        """Describe a file or a folder."""
        name = self._strip_protocol(path)
        with _os_errors(name):
            return self._describe(name) if name else _folder_entry("")

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **options: Any,
    ) -> Any:
        """List all files below a folder, in one listing of the store."""
        folder = self._strip_protocol(path)
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth, withdirs, detail, **options)
        with _os_errors(folder):
            entries = {info.path: _file_entry(info) for info in self.store.list(folder)}
            if not entries and folder and self.store.exists(folder):
                entries = {folder: self._describe(folder)}
        ordered = dict(sorted(entries.items()))
        return ordered if detail else list(ordered)

    def modified(self, path: str) -> datetime | None:
        """Return the time of the last change."""
        name = self._strip_protocol(path)
        with _os_errors(name):
            return self.store.info(name).modified_at

    def _describe(self, name: str) -> dict[str, Any]:
        try:
            return _file_entry(self.store.info(name))
        except NotFound:
            below = next(self.store.files(name), None) or next(self.store.folders(name), None)
            if below is None and name not in self._folders_beside(name):
                raise
            return _folder_entry(name)

    def _folders_beside(self, name: str) -> Iterator[str]:
        """List the folders next to a path: some stores have empty ones."""
        return self.store.folders(name.rpartition("/")[0])

    # ---- files ----

    def _open(self, path: str, mode: str = "rb", **_options: Any) -> Any:
        name = self._strip_protocol(path)
        if mode == "rb":
            with _os_errors(name):
                return _StoreReader(self.store.read(name))
        self._check_writable(name)
        if mode not in HOW_BY_MODE:
            raise ValueError(f"mode {mode!r} is not supported: a store has rb, wb and xb")
        if mode == "xb" and self.store.exists(name):
            raise FileExistsError(f"file {name!r} already exists")
        return _StoreWriter(self.store, name, HOW_BY_MODE[mode])

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_options: Any) -> None:
        """Write a file. The mode `create` raises FileExistsError if it exists."""
        name = self._strip_protocol(path)
        self._check_writable(name)
        write = self.store.create if mode == "create" else self.store.write_atomic
        with _os_errors(name):
            write(name, value)

    def rm_file(self, path: str) -> None:
        """Delete a file."""
        name = self._strip_protocol(path)
        self._check_writable(name)
        with _os_errors(name):
            self.store.info(name)  # Deleting a missing file is not an error of a store.
            self.store.delete(name)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files, and with `recursive` the files below folders."""
        for name in self.expand_path(path, recursive=recursive, maxdepth=maxdepth):
            if self.isfile(name):
                self.rm_file(name)

    def cp_file(self, path1: str, path2: str, **_options: Any) -> None:
        """Copy a file. A folder needs no copy, because folders are created as needed."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        self._check_writable(target)
        with _os_errors(source):
            if not self.isdir(source):
                self.store.copy(source, target)

    def mkdir(self, path: str, create_parents: bool = True, **_options: Any) -> None:
        """Do nothing: folders are created as needed."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Do nothing: folders are created as needed."""

    def rmdir(self, path: str) -> None:
        """Do nothing: a folder of a store is its files."""

    def _check_writable(self, name: str) -> None:
        if self.read_only:
            raise PermissionError(f"{name!r} cannot be changed: this view is read-only")


class _StoreReader(io.BufferedIOBase):
    """A file that closes itself when it is dropped, as PyArrow and DuckDB do with their files.

    A file of the operating system would warn then. Do not share it between threads.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def read(self, size: int | None = -1, /) -> bytes:
        return self._file.read(-1 if size is None else size)

    def readinto(self, target: Any, /) -> int:
        piece = self._file.read(len(memoryview(target).cast("B")))
        memoryview(target).cast("B")[: len(piece)] = piece
        return len(piece)

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._file.readline(-1 if size is None else size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _StoreWriter(io.BufferedIOBase):
    """A file that is written to the store when it is closed. Do not share it between threads."""

    def __init__(self, store: Store, path: str, how: How) -> None:
        self._store = store
        self._path = path
        self._how: How = how
        self._spool = SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115  # closed by close()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        return self._spool.write(data)

    def tell(self) -> int:
        return self._spool.tell()

    def discard(self) -> None:
        """Close without writing to the store."""
        self._spool.close()
        super().close()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._spool.seek(0)
            source = cast(BinaryIO, self._spool)
            write = self._store.create if self._how == "create" else self._store.write_atomic
            with _os_errors(self._path):
                write(self._path, source)
        finally:
            self.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        raised: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        if raised is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if not self.closed:
            self.discard()  # Not close(): a file that was dropped is not complete.


@contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Raise the errors that Python has for files. Others stay storage errors."""
    try:
        yield
    except NotFound as error:
        raise FileNotFoundError(str(error)) from error
    except AlreadyExists as error:
        raise FileExistsError(str(error)) from error
    except Denied as error:
        raise PermissionError(str(error)) from error
    except StorageError as error:
        error.add_note(f"redrive: at {path!r} of a view for fsspec")
        raise


def _file_entry(info: FileInfo) -> dict[str, Any]:
    return {
        "name": info.path,
        "size": info.size,
        "type": "file",
        "mtime": info.modified_at,
        "etag": info.etag,
    }


def _folder_entry(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}
