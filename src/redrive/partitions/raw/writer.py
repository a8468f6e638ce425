"""Sink: where one run writes. Nothing that exists is overwritten; nothing counts until the extraction returns."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from threading import Lock
from typing import Any, BinaryIO, cast

from ...core.seconds import whole_number
from ...core.text import pluralise
from ...errors import AlreadyExists
from ...ledger.failpoint import crash_point
from ...storage.body import CHUNK_BYTES
from ...storage.path import path_problem
from ...storage.store import SPOOL_BYTES, Store
from ..key import Partition
from . import jsonl, parquet
from .layout import MANIFEST, folder_of, manifest_of
from .manifest import Manifest, Written

DEFAULT = "rows.jsonl"


class Writing:
    """One run being written: its files, and last of all its manifest. For whoever runs the extraction; threads may share it."""

    def __init__(self, store: Store, partition: Partition, run_id: str, /, *, alive: Callable[[], None] = lambda: None) -> None:
        """alive: asked before each piece; raises where the run has been lost, or is out of time."""
        self.store, self.partition, self.run_id = store, partition, run_id
        self._folder = folder_of(partition, run_id)
        self._alive = alive
        self._files: dict[str, Written] = {}
        self._begun: dict[str, str] = {}
        """Names as disks compare them, of files that are written or being written."""
        self._lock = Lock()
        self._over = False
        self.sink = Sink(self)

    @contextmanager
    def taking(self, name: str, /) -> Iterator[None]:
        """The name is this file's, for good where nothing is raised inside. ValueError says why it cannot be."""
        plain = _checked(name)
        with self._lock:
            if self._over:
                raise ValueError(f"{name!r} comes too late: the extraction of {self.partition} has ended")
            if plain in self._begun:
                there = self._begun[plain]
                told = "" if there == name else f" (as {there!r}, which some disks take for the same)"
                raise ValueError(f"{name!r} was written by this run already{told}: give each file a name of its own, name=...")
            self._begun[plain] = name
        try:
            yield
        except BaseException:  # nothing of it is there: the extraction may try again
            with self._lock:
                del self._begun[plain]
            raise

    def create(self, name: str, pieces: Iterable[bytes], rows: Callable[[], int | None], /) -> None:
        """Write a file, in bounded memory; all of it, or nothing. rows: asked at the end."""
        digest, size = sha256(), 0

        def passing() -> Iterator[bytes]:
            nonlocal size
            for piece in pieces:
                self._alive()
                digest.update(piece)
                size += len(piece)
                yield piece
                crash_point("run.payload")
            self._alive()

        try:
            self.store.create(f"{self._folder}/{name}", passing())
        except AlreadyExists as there:
            there.add_note(f"run {self.run_id} of {self.partition} has it already: what a run wrote is never overwritten")
            raise
        with self._lock:
            self._files[name] = Written(name, size, digest.hexdigest(), rows())

    def end(self, now: datetime, /) -> Manifest:
        """The extraction has returned: the manifest is written, and the run is whole. ValueError where nothing was written."""
        with self._lock:
            self._over = True
            left = [name for name in self._begun.values() if name not in self._files]
            if left:
                raise ValueError(f"the extraction of {self.partition} returned while {left[0]!r} was still being written")
            files = tuple(sorted(self._files.values(), key=lambda file: file.name))
        if not files:
            raise ValueError(
                f"the extraction of {self.partition} wrote no file; call out.rows(rows) or out.open(name), "
                f"or out.rows([]) for an empty result"
            )
        manifest = Manifest(self.partition, self.run_id, files, now)
        self._alive()
        crash_point("run.before_manifest")
        put(self.store, manifest)
        crash_point("run.after_manifest")
        return manifest

    def abandon(self) -> None:
        """Whatever still writes is refused from now on."""
        with self._lock:
            self._over = True


class Sink:
    """Where one run writes its files. `run_id` is new for every attempt.

    Existing files cannot be overwritten. The files count when the extraction returns. Threads of
    the extraction may share it.
    """

    def __init__(self, run: Writing) -> None:
        self._run = run
        self.run_id = run.run_id
        """New at every attempt."""

    def rows(self, rows: Iterable[Mapping[str, Any]], /, *, name: str = DEFAULT) -> int:
        """Write rows as JSON Lines. If the rows raise, the file does not exist.

        Args:
            rows: The rows. They are written as they arrive.
            name: Name of the file.

        Returns:
            The number of rows.
        """
        jsonl.taken(rows)
        run, lines = self._run, jsonl.Lines(name)
        with run.taking(name):
            run.create(name, lines.pieces(rows), lambda: lines.rows)
        return lines.rows

    async def arows(self, rows: AsyncIterable[Mapping[str, Any]] | Iterable[Mapping[str, Any]], /, *, name: str = DEFAULT) -> int:
        """Write rows as JSON Lines, from async code. The rows are collected in a temporary file.

        Args:
            rows: The rows.
            name: Name of the file.

        Returns:
            The number of rows.
        """
        from asyncio import to_thread  # noqa: PLC0415  # only where there is a loop

        run, lines = self._run, jsonl.Lines(name)
        if not isinstance(rows, AsyncIterable):
            return await to_thread(self.rows, rows, name=name)
        with run.taking(name), SpooledTemporaryFile(SPOOL_BYTES) as spool:
            async for row in rows:
                spool.write(lines.line(row))
            spool.seek(0)
            await to_thread(run.create, name, _pieces(cast(BinaryIO, spool)), lambda: lines.rows)
        return lines.rows

    def open(self, name: str, /, *, rows: int | None = None) -> AbstractContextManager[BinaryIO]:
        """Open a file of any format for writing: `with out.open("orders.parquet") as file:`.

        The file exists when the block ends. Up to 8 MiB are kept in memory, more in a temporary
        file.

        Args:
            name: Name of the file.
            rows: Number of rows, for formats other than JSON Lines and Parquet.

        Returns:
            A context manager with the open file.
        """
        return self._opened(name, None if rows is None else whole_number("rows", rows, least=0))

    @contextmanager
    def _opened(self, name: str, rows: int | None) -> Iterator[BinaryIO]:
        run = self._run
        with run.taking(name), Handed(SPOOL_BYTES) as spool:
            file = cast(BinaryIO, spool)
            yield file
            known = _agreed(name, rows, _counted(name, file))
            file.seek(0)
            run.create(name, _pieces(file), lambda: known)


class Handed(SpooledTemporaryFile[bytes]):
    """A file to write into. Whoever writes may close it: it is here until the block ends."""

    def close(self) -> None:
        """Nothing yet."""

    def __exit__(self, *raised: object) -> None:
        super().close()


def put(store: Store, manifest: Manifest, /) -> None:
    """Write the manifest, once."""
    path = manifest_of(manifest.partition, manifest.run_id)
    try:
        store.create(path, manifest.encoded())
    except AlreadyExists as there:
        there.add_note(f"run {manifest.run_id} of {manifest.partition} has ended already: what a run wrote is never overwritten")
        raise


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(CHUNK_BYTES):
        yield piece


def _counted(name: str, file: BinaryIO) -> int | None:
    """How many rows there are, where the format tells."""
    file.seek(0)
    if name.endswith(jsonl.ENDINGS):
        return jsonl.counted(_pieces(file))
    if name.endswith(parquet.ENDINGS):
        return parquet.rows_of(file, name)
    return None


def _agreed(name: str, told: int | None, found: int | None) -> int | None:
    if told is not None and found is not None and told != found:
        raise ValueError(f"{name!r} has {pluralise(found, 'row')}, but rows={told:,} was passed")
    return told if found is None else found


def _checked(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a file is text, not {type(name).__name__}: {name!r}")
    wrong = path_problem(name)
    if wrong is not None:
        raise ValueError(f"{name!r} cannot be the name of a file: {wrong}")
    plain = unicodedata.normalize("NFC", name).casefold()
    if plain == MANIFEST:
        raise ValueError(f"{MANIFEST!r} is the run's own: it is written at the end, with what all files hold")
    return plain
