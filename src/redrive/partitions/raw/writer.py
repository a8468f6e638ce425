"""RunWriter and Sink: write the files of one run.

Nothing that exists is overwritten, and nothing counts until the extraction returns.
"""

from __future__ import annotations

import unicodedata
from asyncio import to_thread
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
from .manifest import MANIFEST, FileEntry, Manifest, manifest_path, run_folder

DEFAULT_NAME = "rows.jsonl"


class RunWriter:
    """Writes the files of one run, and last its manifest. Threads may share it."""

    def __init__(
        self,
        store: Store,
        partition: Partition,
        run_id: str,
        /,
        *,
        check_alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare.

        Args:
            check_alive: Called before each piece. Raises if the run is lost, or out of time.
        """
        self.store = store
        self.partition = partition
        self.run_id = run_id
        self._folder = run_folder(partition, run_id)
        self._check_alive = check_alive
        self._files: dict[str, FileEntry] = {}
        self._names: dict[str, str] = {}
        """Names of files that are written or being written, by the name as disks compare it."""
        self._lock = Lock()
        self._is_over = False
        self.sink = Sink(self)

    @contextmanager
    def reserve_name(self, name: str, /) -> Iterator[None]:
        """Reserve the name of a file. It is free again if the block raises.

        Raises:
            ValueError: The name is invalid, or used by this run.
        """
        folded = _check_name(name)
        with self._lock:
            if self._is_over:
                raise ValueError(
                    f"{name!r} comes too late: the extraction of {self.partition} has ended"
                )
            if folded in self._names:
                other = self._names[folded]
                same = (
                    "" if other == name else f" (as {other!r}, which some disks take for the same)"
                )
                raise ValueError(
                    f"{name!r} was written by this run already{same}: "
                    "give each file a name of its own, name=..."
                )
            self._names[folded] = name
        try:
            yield
        except BaseException:  # the file does not exist, so the extraction may write it again
            with self._lock:
                del self._names[folded]
            raise

    def write_file(
        self, name: str, pieces: Iterable[bytes], rows: Callable[[], int | None], /
    ) -> None:
        """Write a file in bounded memory: all of it, or nothing.

        Args:
            name: Its name, reserved.
            pieces: Its content.
            rows: Returns the number of rows. Called at the end.
        """
        digest, size = sha256(), 0

        def pieces_while_alive() -> Iterator[bytes]:
            nonlocal size
            for piece in pieces:
                self._check_alive()
                digest.update(piece)
                size += len(piece)
                yield piece
                crash_point("run.payload")
            self._check_alive()

        try:
            self.store.create(f"{self._folder}/{name}", pieces_while_alive())
        except AlreadyExists as error:
            error.add_note(
                f"run {self.run_id} of {self.partition} has it already: "
                "what a run wrote is never overwritten"
            )
            raise
        with self._lock:
            self._files[name] = FileEntry(name, size, digest.hexdigest(), rows())

    def finish(self, now: datetime, /) -> Manifest:
        """Write the manifest, which completes the run. The extraction has returned.

        Raises:
            ValueError: Nothing was written, or a file is still being written.
        """
        with self._lock:
            self._is_over = True
            open_names = [name for name in self._names.values() if name not in self._files]
            if open_names:
                raise ValueError(
                    f"the extraction of {self.partition} returned "
                    f"while {open_names[0]!r} was still being written"
                )
            files = tuple(sorted(self._files.values(), key=lambda file: file.name))
        if not files:
            raise ValueError(
                f"the extraction of {self.partition} wrote no file; "
                "call out.rows(rows) or out.open(name), or out.rows([]) for an empty result"
            )
        manifest = Manifest(self.partition, self.run_id, files, now)
        self._check_alive()
        crash_point("run.before_manifest")
        write_manifest(self.store, manifest)
        crash_point("run.after_manifest")
        return manifest

    def abandon(self) -> None:
        """Refuse more files."""
        with self._lock:
            self._is_over = True


class Sink:
    """Where one run writes its files. `run_id` is new for every attempt.

    Existing files cannot be overwritten. The files count when the extraction returns. Threads of
    the extraction may share it.
    """

    def __init__(self, run: RunWriter) -> None:
        self._run = run
        self.run_id = run.run_id
        """New for every attempt."""

    def rows(self, rows: Iterable[Mapping[str, Any]], /, *, name: str = DEFAULT_NAME) -> int:
        """Write rows as JSON Lines. If the rows raise, the file does not exist.

        Args:
            rows: The rows. They are written as they arrive.
            name: Name of the file.

        Returns:
            The number of rows.
        """
        jsonl.check_rows(rows)
        run, lines = self._run, jsonl.LineEncoder(name)
        with run.reserve_name(name):
            run.write_file(name, lines.pieces(rows), lambda: lines.rows)
        return lines.rows

    async def arows(
        self,
        rows: AsyncIterable[Mapping[str, Any]] | Iterable[Mapping[str, Any]],
        /,
        *,
        name: str = DEFAULT_NAME,
    ) -> int:
        """Write rows as JSON Lines, from async code. The rows are collected in a temporary file.

        Args:
            rows: The rows, from a sync or async iterable.
            name: Name of the file.

        Returns:
            The number of rows.
        """
        run, lines = self._run, jsonl.LineEncoder(name)
        if not isinstance(rows, AsyncIterable):
            return await to_thread(self.rows, rows, name=name)
        with run.reserve_name(name), SpooledTemporaryFile(SPOOL_BYTES) as spool:
            async for row in rows:
                spool.write(lines.line(row))
            spool.seek(0)
            await to_thread(
                run.write_file, name, _pieces(cast(BinaryIO, spool)), lambda: lines.rows
            )
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
        return self._open_file(name, None if rows is None else whole_number("rows", rows, least=0))

    @contextmanager
    def _open_file(self, name: str, rows: int | None) -> Iterator[BinaryIO]:
        run = self._run
        with run.reserve_name(name), SpooledFile(SPOOL_BYTES) as spool:
            file = cast(BinaryIO, spool)
            yield file
            known = _agree(name, rows, _count_rows(name, file))
            file.seek(0)
            run.write_file(name, _pieces(file), lambda: known)


class SpooledFile(SpooledTemporaryFile[bytes]):
    """A file that user code may close. It is available until the block ends."""

    def close(self) -> None:
        """Do nothing yet."""

    def __exit__(self, *raised: object) -> None:
        super().close()


def write_manifest(store: Store, manifest: Manifest, /) -> None:
    """Write a manifest, once."""
    path = manifest_path(manifest.partition, manifest.run_id)
    try:
        store.create(path, manifest.encode())
    except AlreadyExists as error:
        error.add_note(
            f"run {manifest.run_id} of {manifest.partition} has ended already: "
            "what a run wrote is never overwritten"
        )
        raise


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(CHUNK_BYTES):
        yield piece


def _count_rows(name: str, file: BinaryIO) -> int | None:
    """Count the rows, if the format allows it."""
    file.seek(0)
    if name.endswith(jsonl.ENDINGS):
        return jsonl.count_lines(_pieces(file))
    if name.endswith(parquet.ENDINGS):
        return parquet.count_rows(file, name)
    return None


def _agree(name: str, passed: int | None, counted: int | None) -> int | None:
    if passed is not None and counted is not None and passed != counted:
        rows = pluralise(counted, "row")
        raise ValueError(f"{name!r} has {rows}, but rows={passed:,} was passed")
    return passed if counted is None else counted


def _check_name(name: object) -> str:
    """Return a valid name as disks compare it."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a file is text, not {type(name).__name__}: {name!r}")
    problem = path_problem(name)
    if problem is not None:
        raise ValueError(f"{name!r} cannot be the name of a file: {problem}")
    folded = unicodedata.normalize("NFC", name).casefold()
    if folded == MANIFEST:
        raise ValueError(
            f"{MANIFEST!r} is the run's own: it is written at the end, with what all files hold"
        )
    return folded
