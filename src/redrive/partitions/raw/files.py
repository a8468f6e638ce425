"""Raw: what one run wrote, held against its manifest. For checks to look at, and for readers."""

from __future__ import annotations

import io
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
from .manifest import Manifest, Written, loaded


class File:
    """A file of a run. Immutable: threads may share it. The result of `open` belongs to one thread.

    Attributes:
        name: Name of the file.
        size: Number of bytes.
        sha256: Digest of the bytes.
        rows: Number of rows, if it is known.
        run_id: Id of the run that wrote it.
    """

    __slots__ = ("_path", "_store", "name", "rows", "run_id", "sha256", "size")

    def __init__(self, store: Store, manifest: Manifest, written: Written) -> None:
        self._store = store
        self._path = manifest.path(written)
        self.run_id = manifest.run_id
        self.name, self.size, self.sha256, self.rows = written.name, written.size, written.sha256, written.rows

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
            inner = self._store.read(self._path)
        except NotFound as missing:
            raise self.damaged("is missing in the store; it was deleted") from missing
        return cast(BinaryIO, io.BufferedReader(Verified(inner, self), CHUNK_BYTES))

    def looked(self) -> None:
        """Check that the file exists with its size. Its bytes are not read.

        Raises:
            Damaged: It does not.
        """
        try:
            size = self._store.info(self._path).size
        except NotFound as missing:
            raise self.damaged("is missing in the store; it was deleted") from missing
        if size != self.size:
            written = pluralise(self.size, "was", "were")
            raise self.damaged(f"has {pluralise(size, 'byte')}, but {written} written; it was changed")

    def damaged(self, says: str, /) -> Damaged:
        """Return an error about this file.

        Args:
            says: What is wrong.

        Returns:
            The error.
        """
        told = f"{self._store.name}: {self._path} of run {self.run_id} {says}"
        return Damaged(told, path=self._path, backend=self._store.backend.name)

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the file: JSON Lines, or Parquet with pyarrow.

        Yields:
            The rows.

        Raises:
            TypeError: The format has no rows. Use `open`.
        """
        if self.name.endswith(jsonl.ENDINGS):
            with self.open() as file:
                yield from jsonl.read(file, self.name)
        elif self.name.endswith(parquet.ENDINGS):
            with self.open() as file:
                yield from parquet.read(file, self.name)
        else:
            raise TypeError(f"rows() reads JSON Lines and Parquet; {self.name!r} is neither: read it with file.open()")

    def __repr__(self) -> str:
        return f"<File {self.name} of run {self.run_id}: {pluralise(self.size, 'byte')}>"


class Verified(io.RawIOBase):
    """A file that is compared with its manifest as it is read. Not shared between threads, as files are not."""

    def __init__(self, inner: BinaryIO, file: File) -> None:
        self._inner, self._file = inner, file
        self._digest, self._read = sha256(), 0
        self._straight = True
        """Read from its front, byte after byte: only then does a digest say something."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._inner.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        at = self._inner.seek(offset, whence)
        self._straight = self._straight and at == self._read
        return at

    def tell(self) -> int:
        return self._read if self._straight else self._inner.tell()

    def readinto(self, target: memoryview, /) -> int:  # type: ignore[override]  # the stubs want any buffer; BufferedReader gives this
        found = self._inner.read(len(target))
        target[: len(found)] = found
        self._seen(found)
        return len(found)

    def readall(self) -> bytes:
        found = self._inner.read()
        if found:
            self._seen(found)
        self._seen(b"")
        return found

    def _seen(self, piece: bytes) -> None:
        if not self._straight:
            return
        self._digest.update(piece)
        self._read += len(piece)
        if self._read > self._file.size or (not piece and self._read < self._file.size):
            more = "at least " if piece else ""
            written = pluralise(self._file.size, "was", "were")
            raise self._file.damaged(f"has {more}{pluralise(self._read, 'byte')}, but {written} written; it was changed")
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

    def __init__(self, store: Store, manifest: Manifest, /, *, previous: Callable[[], Raw | None] = lambda: None) -> None:
        """Describe the data of a run.

        Args:
            store: Where the files are.
            manifest: The list of files.
            previous: Function that returns the current run.
        """
        self.partition: Partition = manifest.partition
        self.run_id = manifest.run_id
        self.files: Sequence[File] = tuple(File(store, manifest, one) for one in manifest.files)
        self.row_count = manifest.row_count
        """Rows of all files that say how many they have."""
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

    def looked(self) -> None:
        """Check that all files exist with their sizes.

        Raises:
            Damaged: A file does not.
        """
        for file in self.files:
            file.looked()

    def verified(self) -> None:
        """Read all files and compare every byte with its digest.

        Raises:
            Damaged: A file has changed.
        """
        for file in self.files:
            with file.open() as opened:
                while opened.read(CHUNK_BYTES):
                    pass

    def __repr__(self) -> str:
        files, rows = pluralise(len(self.files), "file"), pluralise(self.row_count, "row")
        return f"<Raw {self.partition} run {self.run_id}: {files}, {rows}>"


def raw(
    store: Store, partition: Partition, run_id: str, /, *, digest: str | None = None,
    previous: Callable[[], Raw | None] = lambda: None,
) -> Raw:  # fmt: skip
    """What a run wrote. Damaged where its manifest or a file is missing, or not what it was; bytes are compared when read.

    digest: of the manifest, as the ledger has it.
    """
    found = Raw(store, loaded(store, partition, run_id, digest=digest), previous=previous)
    found.looked()
    return found
