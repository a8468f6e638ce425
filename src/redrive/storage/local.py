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

from ..errors import AlreadyExists, NotFound, PathInvalid
from .backend import How
from .body import CHUNK, Body
from .info import Capabilities, FileInfo
from .mapped import from_os
from .path import RESERVED, all_listable
from .skipped import Skipped

UTC, fromtimestamp = timezone.utc, datetime.fromtimestamp
NO_LINKS = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))


class Local:
    """Files in a folder. Links are followed only where they stay inside. Threads, processes and forked children may share it.

    A file is written beside its place and moved there whole: nobody sees a half, in any way of writing. `write_atomic` and
    `create` also wait until the disk has it.
    """

    capabilities = Capabilities(atomic_write=True, exclusive_create=True, atomic_move=True, native_copy=True, empty_folders=True)

    def __init__(self, name: str = "local", /, *, root: str, create: bool = True) -> None:
        """root: the folder. create: make it when it is first written to; the folder in which it is must be there in any case."""
        self.name = name
        self.root = Path(root).absolute()
        self._create = create

    def read(self, path: str, /) -> BinaryIO:
        with self._mapped(path):
            opened = _File(self._followed(path), partial(from_os, path=path, backend=self.name))
        return cast(BinaryIO, io.BufferedReader(opened, CHUNK))

    def read_bytes(self, path: str, /) -> bytes:
        with self.read(path) as file:
            return file.read()

    def write(self, path: str, body: Body, how: How, /) -> None:
        with self._mapped(path, writing=True):
            target = self._place(path)
            if how == "create" and _is_there(target):
                raise self._there(path)  # before the source is read: a generator is not run for nothing
            self._put(target, path, how, lambda file: _fill(file, body))

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        for start, entries in self._walked(folder, recursive):
            for entry in entries:
                try:
                    found = entry.stat()
                except FileNotFoundError:
                    continue  # gone since the folder was read
                yield FileInfo(start + entry.name, found.st_size, fromtimestamp(found.st_mtime, UTC))

    def paths(self, folder: str, /, *, recursive: bool) -> Iterator[str]:
        """The same without a look at each file, which is most of the work."""
        return chain.from_iterable(
            [start + entry.name for entry in entries] for start, entries in self._walked(folder, recursive)
        )

    def _walked(self, folder: str, recursive: bool) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
        """Folder by folder: what stands before its files' names, and the files."""
        waiting: list[tuple[str, str | None]] = [(folder, None)]
        while waiting:
            here, place = waiting.pop()
            start = f"{here}/" if here else ""
            found = self._scanned(here, place)
            files = [entry for entry in found if entry.is_file(follow_symlinks=False) or self._leads_to_file(entry)]
            if recursive and len(files) < len(found):
                waiting += [(start + entry.name, entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
            yield start, files

    def folders(self, folder: str, /) -> Iterator[str]:
        for entry in self._scanned(folder):
            if entry.is_dir(follow_symlinks=False):
                yield f"{folder}/{entry.name}" if folder else entry.name

    def info(self, path: str, /) -> FileInfo:
        with self._mapped(path):
            found = self._followed(path).stat()
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError(errno.ENOENT, "not a file")
            return _info(path, found)

    def delete(self, path: str, /) -> None:
        with self._mapped(path):
            try:
                self._inside(path).unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._root()  # nothing to delete; but is the folder of all folders there?

    def move(self, source: str, target: str, /) -> None:
        self.info(source)  # a folder is not moved
        with self._mapped(target, writing=True):
            place = self._place(target)
            try:
                self._inside(source).replace(place)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self.copy(source, target)  # another disk is mounted in between: first there, then gone here
                self._inside(source).unlink()

    def copy(self, source: str, target: str, /) -> None:
        with self.read(source) as file, self._mapped(target, writing=True):
            self._put(self._place(target), target, "atomic", lambda out: shutil.copyfileobj(file, out, CHUNK))

    def check(self) -> None:
        with self._mapped(""):
            root = self._root()
            if root.exists():
                next(root.iterdir(), None)

    def close(self) -> None:
        """Nothing is open."""

    # ---- where a path is on the disk ----

    def _root(self) -> Path:
        root = _real(self.root)
        # One stat call: between two of them another writer may create the folder.
        try:
            is_usable = stat.S_ISDIR(root.stat().st_mode)
        except FileNotFoundError:
            is_usable = self._create and root.parent.is_dir()
        if not is_usable:
            raise NotFound(f"{self.name}: the folder {self.root} is missing", path="", backend=self.name)
        return root

    def _inside(self, path: str) -> Path:
        """Where the file is; its folder is followed through links, and must be inside the root."""
        root = self._root()
        place = root / path
        return self._checked(path, _real(place.parent), root) / place.name

    def _followed(self, path: str) -> Path:
        """The same, followed to the end."""
        root = self._root()
        return self._checked(path, _real(root / path), root)

    def _place(self, path: str) -> Path:
        """The same, for a file to be written: its folder is made."""
        place = self._inside(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _checked(self, path: str, place: Path, root: Path) -> Path:
        if not place.is_relative_to(root):
            raise PathInvalid(f"{self.name}: {path!r} leads out of {self.root} through a link", path=path, backend=self.name)
        return place

    def _leads_to_file(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_symlink() and entry.is_file() and _real(Path(entry.path)).is_relative_to(self._root())
        except OSError:  # in a circle, say
            return False

    def _scanned(self, folder: str, place: str | None = None) -> list[os.DirEntry[str]]:
        """What is in a folder. place: where it is, if that is known to be inside."""
        with self._mapped(folder):
            try:
                with os.scandir(self._followed(folder) if place is None else place) as found:
                    entries = list(found)
                if all_listable([entry.name for entry in entries]):
                    return entries
                skipped = Skipped(self.name)
                return [entry for entry in entries if skipped.is_name(entry.name)]
            except (FileNotFoundError, NotADirectoryError):
                self._root()
                return []

    # ---- writing ----

    def _put(self, target: Path, path: str, how: How, fill: Callable[[BinaryIO], object]) -> None:
        temporary = target.with_name(f"{RESERVED}{secrets.token_hex(8)}")
        try:
            with temporary.open("xb", buffering=0) as file:
                fill(cast(BinaryIO, file))
                if how != "replace":
                    os.fsync(file.fileno())
            if how == "create":
                self._put_absent(temporary, target, path)
            else:
                temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if how != "replace":
            _sync_folder(target.parent)

    def _put_absent(self, temporary: Path, target: Path, path: str) -> None:
        """A second name for the file, which fails where there is one; where the disk has no links, the name is taken first."""
        try:
            try:
                target.hardlink_to(temporary)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                target.touch(exist_ok=False)
                temporary.replace(target)
        except FileExistsError as error:
            raise self._there(path) from error
        temporary.unlink(missing_ok=True)

    def _there(self, path: str) -> AlreadyExists:
        return AlreadyExists(f"{self.name}: file {path!r} already exists", path=path, backend=self.name)

    @contextmanager
    def _mapped(self, path: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise from_os(error, path=path, backend=self.name, writing=writing) from error


class _File(io.FileIO):
    """A file whose errors are ours. Not shared between threads, as files are not."""

    def __init__(self, place: Path, mapped: Callable[[OSError], Exception]) -> None:
        super().__init__(place, "r")
        self._ours = mapped

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # the stubs want any buffer; BufferedReader gives this
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise self._ours(error) from error

    def readall(self) -> bytes:
        try:
            return super().readall()
        except OSError as error:
            raise self._ours(error) from error


def _fill(file: BinaryIO, body: Body) -> None:
    for piece in body.pieces():
        rest = memoryview(piece)
        while rest:
            rest = rest[file.write(rest) :]  # a disk that fills up takes a part first


def _sync_folder(folder: Path) -> None:
    """Have the disk remember the name too, not only the bytes."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems have no such thing
    finally:
        os.close(descriptor)


def _real(place: Path) -> Path:
    """Where it is when all links are followed. Not `resolve`: that raises where they lead in a circle."""
    return Path(os.path.realpath(place))


def _is_there(place: Path) -> bool:
    try:
        place.lstat()
    except FileNotFoundError:
        return False
    return True


def _info(path: str, found: os.stat_result) -> FileInfo:
    at = fromtimestamp(found.st_mtime, UTC)
    return FileInfo(path, found.st_size, at, f"{found.st_mtime_ns:x}-{found.st_ino:x}-{found.st_size:x}")
