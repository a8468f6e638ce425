"""Raw: the files of one run, compared with its manifest. For checks and readers."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, BinaryIO, cast

from ...core.text import pluralise
from ...errors import Damaged, NotFound
from ...storage.body import CHUNK_BYTES
from ...storage.store import Store
from ..key import Partition
from . import jsonl, parquet
from .manifest import FileEntry, Manifest, load_manifest


def _old_method(old: str, new: str) -> Callable[[Any], None]:
    """Return a method under its old name."""

    def call(self: Any) -> None:
        warnings.warn(f"{old}() is deprecated; use {new}()", DeprecationWarning, stacklevel=2)
        getattr(self, new)()

    return call


class File:
    """A file of a run. Immutable: threads may share it. The result of `open` belongs to one thread.

    Attributes:
        name: Name of the file.
        size: Number of bytes.
        sha256: Digest of the bytes.
        rows: Number of rows, if it is known.
        run_id: Id of the run that wrote it.
        path: Path in the store of the dataset, for tools that read the store directly.
    """

    __slots__ = ("_store", "name", "path", "rows", "run_id", "sha256", "size")

    def __init__(self, store: Store, manifest: Manifest, entry: FileEntry) -> None:
        self._store = store
        self.path = manifest.path(entry)
        self.run_id = manifest.run_id
        self.name = entry.name
        self.size = entry.size
        self.sha256 = entry.sha256
        self.rows = entry.rows

    def open(self) -> BinaryIO:
        """Open the file for reading, in bounded memory.

        The digest is compared while you read, so that a change is reported at the end. It is not
        compared after a seek.

        Returns:
            The open file.

        Raises:
            Damaged: The file is gone, or its bytes have changed.
        """
        try:
            inner = self._store.read(self.path)
        except NotFound as missing:
            raise self.damaged("is missing in the store; it was deleted") from missing
        return cast(BinaryIO, io.BufferedReader(VerifiedReader(inner, self), CHUNK_BYTES))

    def check_size(self) -> None:
        """Check that the file exists with its size. Its bytes are not read.

        Raises:
            Damaged: It does not.
        """
        try:
            size = self._store.info(self.path).size
        except NotFound as missing:
            raise self.damaged("is missing in the store; it was deleted") from missing
        if size != self.size:
            written = pluralise(self.size, "was", "were")
            raise self.damaged(
                f"has {pluralise(size, 'byte')}, but {written} written; it was changed"
            )

    looked = _old_method("looked", "check_size")

    def damaged(self, problem: str, /) -> Damaged:
        """Return an error about this file.

        Args:
            problem: What is wrong.

        Returns:
            The error.
        """
        message = f"{self._store.name}: {self.path} of run {self.run_id} {problem}"
        return Damaged(message, path=self.path, backend=self._store.backend.name)

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the file: JSON Lines, or Parquet with pyarrow.

        Yields:
            The rows.

        Raises:
            TypeError: The format has no rows. Use `open`.
        """
        if self.name.endswith(jsonl.ENDINGS):
            with self.open() as file:
                yield from jsonl.read_rows(file, self.name)
        elif self.name.endswith(parquet.ENDINGS):
            with self.open() as file:
                yield from parquet.read_rows(file, self.name)
        else:
            raise TypeError(
                f"rows() reads JSON Lines and Parquet; {self.name!r} is neither: "
                "read it with file.open()"
            )

    def __repr__(self) -> str:
        return f"<File {self.name} of run {self.run_id}: {pluralise(self.size, 'byte')}>"


class VerifiedReader(io.RawIOBase):
    """A file that is compared with its manifest while it is read. Not shared between threads."""

    def __init__(self, inner: BinaryIO, file: File) -> None:
        self._inner = inner
        self._file = file
        self._digest = sha256()
        self._read_bytes = 0
        self._is_sequential = True
        """Read from its start without a seek: only then the digest is meaningful."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._inner.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        position = self._inner.seek(offset, whence)
        self._is_sequential = self._is_sequential and position == self._read_bytes
        return position

    def tell(self) -> int:
        return self._read_bytes if self._is_sequential else self._inner.tell()

    def readinto(self, target: memoryview, /) -> int:  # type: ignore[override]  # BufferedReader passes this
        piece = self._inner.read(len(target))
        target[: len(piece)] = piece
        self._verify(piece)
        return len(piece)

    def readall(self) -> bytes:
        content = self._inner.read()
        if content:
            self._verify(content)
        self._verify(b"")
        return content

    def _verify(self, piece: bytes) -> None:
        """Add a piece to the digest. An empty piece is the end."""
        if not self._is_sequential:
            return
        self._digest.update(piece)
        self._read_bytes += len(piece)
        is_short = not piece and self._read_bytes < self._file.size
        if self._read_bytes > self._file.size or is_short:
            least = "at least " if piece else ""
            size = pluralise(self._read_bytes, "byte")
            written = pluralise(self._file.size, "was", "were")
            raise self._file.damaged(f"has {least}{size}, but {written} written; it was changed")
        if not piece and self._digest.hexdigest() != self._file.sha256:
            raise self._file.damaged("differs from the written file; its bytes were changed")

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()


class Raw:
    """The raw data of one run, as a check gets it. Threads may share it.

    Attributes:
        partition: The partition.
        run_id: Id of the run.
        files: The files.
        row_count: Rows of all files whose number is known.
        written_at: When the run was written.
    """

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        /,
        *,
        previous: Callable[[], Raw | None] = lambda: None,
    ) -> None:
        """Describe the data of a run.

        Args:
            store: Where the files are.
            manifest: The list of files.
            previous: Function that returns the current run.
        """
        self.partition: Partition = manifest.partition
        self.run_id = manifest.run_id
        self.files: Sequence[File] = tuple(File(store, manifest, entry) for entry in manifest.files)
        self.row_count = manifest.row_count
        """Rows of all files whose number is known."""
        self.written_at: datetime = manifest.written_at
        self.manifest = manifest
        self._previous = previous

    @property
    def previous(self) -> Raw | None:
        """Raw data of the current run of the same partition. None if there is none."""
        return self._previous()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of all files, in bounded memory.

        Yields:
            The rows.
        """
        for file in self.files:
            yield from file.read()

    def check_sizes(self) -> None:
        """Check that all files exist with their sizes.

        Raises:
            Damaged: A file does not.
        """
        for file in self.files:
            file.check_size()

    looked = _old_method("looked", "check_sizes")

    def check_digests(self) -> None:
        """Read all files and compare every byte with its digest.

        Raises:
            Damaged: A file has changed.
        """
        for file in self.files:
            with file.open() as opened:
                while opened.read(CHUNK_BYTES):
                    pass

    verified = _old_method("verified", "check_digests")

    def __repr__(self) -> str:
        files, rows = pluralise(len(self.files), "file"), pluralise(self.row_count, "row")
        return f"<Raw {self.partition} run {self.run_id}: {files}, {rows}>"


def load_raw(
    store: Store,
    partition: Partition,
    run_id: str,
    /,
    *,
    digest: str | None = None,
    previous: Callable[[], Raw | None] = lambda: None,
) -> Raw:
    """Return the data of a run. Its bytes are compared when they are read.

    Args:
        digest: Of the manifest, as the ledger has it.
        previous: Function that returns the current run.

    Raises:
        Damaged: Its manifest or a file is missing, or was changed.
    """
    raw = Raw(store, load_manifest(store, partition, run_id, digest=digest), previous=previous)
    raw.check_sizes()
    return raw
