"""Local: files in a folder of this machine."""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

from ..errors import NotFound, PathInvalid
from .backend import Capabilities, FileInfo, How
from .body import CHUNK_BYTES, Body
from .errors import file_exists, from_os
from .path import TEMPORARY_PREFIX, ListingFilter, are_plain_names

UTC, fromtimestamp = timezone.utc, datetime.fromtimestamp
NO_HARD_LINKS = frozenset(
    (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
)


class Local:
    """Files in a folder. Threads, processes and forked children may share it.

    Symbolic links are followed only if they stay inside the folder. A file is written to a
    temporary file next to its path and then renamed, in every way of writing: readers never see a
    part. `write_atomic` and `create` also sync the file to the disk.

    Args:
        name: Name in messages.
        root: The folder.
        create: Create the folder at the first write. Its parent folder must exist.
    """

    capabilities = Capabilities(
        atomic_write=True,
        exclusive_create=True,
        atomic_move=True,
        native_copy=True,
        empty_folders=True,
    )

    def __init__(self, name: str = "local", /, *, root: str, create: bool = True) -> None:
        self.name = name
        self.root = Path(root).absolute()
        self._create = create

    def read(self, path: str, /) -> BinaryIO:
        with self._storage_errors(path):
            to_storage_error = partial(from_os, path=path, backend=self.name)
            raw = _RawFile(self._resolve(path), to_storage_error)
        return cast(BinaryIO, io.BufferedReader(raw, CHUNK_BYTES))

    def read_bytes(self, path: str, /) -> bytes:
        with self.read(path) as file:
            return file.read()

    def write(self, path: str, body: Body, how: How, /) -> None:
        with self._storage_errors(path, writing=True):
            target = self._prepare_target(path)
            if how == "create" and _exists(target):
                raise file_exists(path, self.name)  # Before the source is read for nothing.
            self._replace(target, path, how, lambda file: _write_all(file, body))

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        for prefix, entries in self._walk(folder, recursive):
            for entry in entries:
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # Deleted since the folder was read.
                modified_at = fromtimestamp(status.st_mtime, UTC)
                yield FileInfo(prefix + entry.name, status.st_size, modified_at)

    def paths(self, folder: str, /, *, recursive: bool) -> Iterator[str]:
        """List the paths of files. Much faster than `files`, which needs a `stat` for each."""
        return chain.from_iterable(
            [prefix + entry.name for entry in entries]
            for prefix, entries in self._walk(folder, recursive)
        )

    def folders(self, folder: str, /) -> Iterator[str]:
        for entry in self._scan(folder):
            if entry.is_dir(follow_symlinks=False):
                yield f"{folder}/{entry.name}" if folder else entry.name

    def info(self, path: str, /) -> FileInfo:
        with self._storage_errors(path):
            status = self._resolve(path).stat()
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(errno.ENOENT, "not a file")
            etag = f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}"
            return FileInfo(path, status.st_size, fromtimestamp(status.st_mtime, UTC), etag)

    def delete(self, path: str, /) -> None:
        with self._storage_errors(path):
            try:
                self._resolve_parent(path).unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._real_root()  # The file is missing. Raise if the root is missing too.

    def move(self, source: str, target: str, /) -> None:
        self.info(source)  # Raises for a folder.
        with self._storage_errors(target, writing=True):
            target_file = self._prepare_target(target)
            try:
                self._resolve_parent(source).replace(target_file)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self.copy(source, target)  # The target is on another disk.
                self._resolve_parent(source).unlink()

    def copy(self, source: str, target: str, /) -> None:
        with self.read(source) as file, self._storage_errors(target, writing=True):
            target_file = self._prepare_target(target)
            copy_to = partial(shutil.copyfileobj, file, length=CHUNK_BYTES)
            self._replace(target_file, target, "atomic", copy_to)

    def check(self) -> None:
        with self._storage_errors(""):
            root = self._real_root()
            if root.exists():
                next(root.iterdir(), None)

    def close(self) -> None:
        """Do nothing: no connections are open."""

    # ---- listing ----

    def _walk(self, folder: str, recursive: bool) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
        """Yield each folder as a prefix of its files' paths, with the entries of its files."""
        pending: list[tuple[str, str | None]] = [(folder, None)]
        while pending:
            path, location = pending.pop()
            prefix = f"{path}/" if path else ""
            entries = self._scan(path, location)
            files = [
                entry
                for entry in entries
                if entry.is_file(follow_symlinks=False) or self._is_link_to_file(entry)
            ]
            if recursive and len(files) < len(entries):
                pending += [
                    (prefix + entry.name, entry.path)
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False)
                ]
            yield prefix, files

    def _scan(self, folder: str, location: str | None = None) -> list[os.DirEntry[str]]:
        """Return the entries of a folder. Pass its location if that was checked before."""
        with self._storage_errors(folder):
            try:
                with os.scandir(self._resolve(folder) if location is None else location) as scan:
                    entries = list(scan)
                if are_plain_names([entry.name for entry in entries]):
                    return entries
                listing = ListingFilter(self.name)
                return [entry for entry in entries if listing.accepts_name(entry.name)]
            except (FileNotFoundError, NotADirectoryError):
                self._real_root()
                return []

    def _is_link_to_file(self, entry: os.DirEntry[str]) -> bool:
        try:
            if not entry.is_symlink() or not entry.is_file():
                return False
            return _real(Path(entry.path)).is_relative_to(self._real_root())
        except OSError:  # For example a cycle of links.
            return False

    # ---- locations on the disk ----

    def _real_root(self) -> Path:
        root = _real(self.root)
        # One stat call: between two of them another writer may create the folder.
        try:
            is_usable = stat.S_ISDIR(root.stat().st_mode)
        except FileNotFoundError:
            is_usable = self._create and root.parent.is_dir()
        if not is_usable:
            message = f"{self.name}: the folder {self.root} is missing"
            raise NotFound(message, path="", backend=self.name)
        return root

    def _resolve(self, path: str) -> Path:
        """Return the location of a file, with all links followed."""
        root = self._real_root()
        return self._check_inside(path, _real(root / path), root)

    def _resolve_parent(self, path: str) -> Path:
        """Return the location of a file, with links in its folder followed, but not its own."""
        root = self._real_root()
        location = root / path
        return self._check_inside(path, _real(location.parent), root) / location.name

    def _prepare_target(self, path: str) -> Path:
        """Return the location of a file to write, and create its folder."""
        location = self._resolve_parent(path)
        location.parent.mkdir(parents=True, exist_ok=True)
        return location

    def _check_inside(self, path: str, location: Path, root: Path) -> Path:
        if not location.is_relative_to(root):
            message = f"{self.name}: {path!r} leads out of {self.root} through a link"
            raise PathInvalid(message, path=path, backend=self.name)
        return location

    # ---- writing ----

    def _replace(
        self, target: Path, path: str, how: How, write_to: Callable[[BinaryIO], object]
    ) -> None:
        temporary = target.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
        try:
            with temporary.open("xb", buffering=0) as file:
                write_to(cast(BinaryIO, file))
                if how != "replace":
                    os.fsync(file.fileno())
            if how == "create":
                self._rename_if_absent(temporary, target, path)
            else:
                temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if how != "replace":
            _sync_folder(target.parent)

    def _rename_if_absent(self, temporary: Path, target: Path, path: str) -> None:
        """Rename with a hard link, which fails if the target exists, or create the target first."""
        try:
            try:
                target.hardlink_to(temporary)
            except OSError as error:
                if error.errno not in NO_HARD_LINKS:
                    raise
                target.touch(exist_ok=False)
                temporary.replace(target)
        except FileExistsError as error:
            raise file_exists(path, self.name) from error
        temporary.unlink(missing_ok=True)

    @contextmanager
    def _storage_errors(self, path: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise from_os(error, path=path, backend=self.name, writing=writing) from error


class _RawFile(io.FileIO):
    """A file that raises storage errors. Do not share it between threads."""

    def __init__(self, location: Path, to_storage_error: Callable[[OSError], Exception]) -> None:
        super().__init__(location, "r")
        self._to_storage_error = to_storage_error

    # The stubs want any buffer. BufferedReader passes a memoryview.
    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise self._to_storage_error(error) from error

    def readall(self) -> bytes:
        try:
            return super().readall()
        except OSError as error:
            raise self._to_storage_error(error) from error


def _write_all(file: BinaryIO, body: Body) -> None:
    for piece in body.pieces():
        rest = memoryview(piece)
        while rest:
            rest = rest[file.write(rest) :]  # A disk that fills up writes a part first.


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the new name survives a crash too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # Some file systems cannot sync folders.
    finally:
        os.close(descriptor)


def _exists(location: Path) -> bool:
    """Return whether a file or link exists. Unlike `os.path.lexists`, raise other errors."""
    try:
        location.lstat()
    except FileNotFoundError:
        return False
    return True


def _real(location: Path) -> Path:
    """Follow all links. `Path.resolve` would raise for a cycle of links."""
    return Path(os.path.realpath(location))
