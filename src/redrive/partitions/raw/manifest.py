"""Manifest: the list of files of one run, written last. A run is complete when it has one.

The layout of the files in a store is a pure function of partition and run.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import date, datetime, timezone
from hashlib import sha256
from typing import Any, Self

from ...errors import Damaged, NotFound
from ...storage.body import CHUNK_BYTES
from ...storage.store import Store
from ..key import Partition

MANIFEST = "manifest.json"
"""The file that is written last. A run without it is incomplete, and does not count."""
MAX_PART_CHARS = 160
"""Characters of an encoded part: a disk allows 255 bytes. A longer one is cut, and has a digest."""
_OUR_RUN_ID = re.compile("[0-9A-Za-z-]{1,64}")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")


def encode_part(part: str, /) -> str:
    """Return a part of a key as the name of a folder, for every backend.

    Different parts have different names, also where case does not count. Lower-case letters,
    digits, `_`, `-` and dots inside stay as they are. Everything else is escaped as `%41`. That
    includes upper-case letters, since some disks do not tell `Acme` from `acme`.
    """
    last = len(part) - 1
    name = "".join(
        char if char in _PLAIN or (char == "." and 0 < place < last) else _escape(char)
        for place, char in enumerate(part)
    )
    if len(name) <= MAX_PART_CHARS:
        return name
    head = re.sub(r"%[0-9a-f]?$", "", name[: MAX_PART_CHARS - 40])
    digest = sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{head}~{digest}"  # no other name has a ~


def runs_folder(partition: Partition, /) -> str:
    """Return the folder of all runs of a partition."""
    return (
        f"{encode_part(partition.source)}/customer_id={encode_part(partition.customer_id)}"
        f"/query_name={encode_part(partition.query_name)}"
        f"/logical_date={partition.logical_date.isoformat()}"
    )


def run_folder(partition: Partition, run_id: str, /) -> str:
    """Return the folder of a run. The ledger makes run ids that differ in more than their case."""
    name = run_id if _OUR_RUN_ID.fullmatch(run_id) else encode_part(run_id)
    return f"{runs_folder(partition)}/run_id={name}"


def manifest_path(partition: Partition, run_id: str, /) -> str:
    """Return the path of the manifest of a run."""
    return f"{run_folder(partition, run_id)}/{MANIFEST}"


def _escape(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))


VERSION = 1
MAX_MANIFEST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a run. Immutable: threads may share it."""

    name: str
    size: int
    """In bytes."""
    sha256: str
    """In hexadecimal digits."""
    rows: int | None
    """None: unknown."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of one run. Immutable: threads may share it."""

    partition: Partition
    run_id: str
    files: tuple[FileEntry, ...]
    written_at: datetime

    @property
    def row_count(self) -> int:
        """Rows of all files whose number is known."""
        return sum(file.rows or 0 for file in self.files)

    def path(self, file: FileEntry, /) -> str:
        """Return the path of a file."""
        return f"{run_folder(self.partition, self.run_id)}/{file.name}"

    def encode(self) -> bytes:
        """Return its bytes. The same manifest has the same bytes."""
        key = self.partition
        document = {
            "redrive_manifest": VERSION,
            "source": key.source,
            "customer_id": key.customer_id,
            "query_name": key.query_name,
            "logical_date": key.logical_date.isoformat(),
            "run_id": self.run_id,
            "written_at": self.written_at.astimezone(timezone.utc).isoformat(),
            "row_count": self.row_count,
            "files": [asdict(file) for file in self.files],
        }
        return (json.dumps(document, indent=1) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of its bytes, which the ledger stores."""
        return sha256(self.encode()).hexdigest()

    @classmethod
    def decode(cls, stored: bytes, /) -> Self:
        """Return a manifest from its bytes.

        Raises:
            ValueError: They are not a manifest.
        """
        document = json.loads(stored)
        if not isinstance(document, dict) or "redrive_manifest" not in document:
            raise ValueError("not a manifest of Redrive")
        version = document["redrive_manifest"]
        if version != VERSION:
            raise ValueError(f"version {version!r} of the manifest; this code reads {VERSION}")
        try:
            day = date.fromisoformat(document["logical_date"])
            names = (document["source"], document["customer_id"], document["query_name"])
            files = tuple(map(_file_entry, document["files"]))
            written_at = datetime.fromisoformat(document["written_at"])
            return cls(Partition(*names, day), document["run_id"], files, written_at)
        except (KeyError, TypeError) as error:
            missing = isinstance(error, KeyError)
            raise ValueError(f"it lacks {error}" if missing else str(error)) from None


def _file_entry(item: Any) -> FileEntry:
    rows = item["rows"]
    count = None if rows is None else int(rows)
    return FileEntry(str(item["name"]), int(item["size"]), str(item["sha256"]), count)


def load_manifest(
    store: Store, partition: Partition, run_id: str, /, *, digest: str | None = None
) -> Manifest:
    """Return the manifest of a run.

    Args:
        digest: Its digest, as the ledger has it.

    Raises:
        Damaged: It is gone, cannot be read, is that of another run, or was changed.
    """
    path = manifest_path(partition, run_id)
    run = f"run {run_id} of {partition}"
    try:
        stored = _read(store, path)
    except NotFound as missing:
        problem = f"{run} has no manifest: it was never ended, or has been deleted"
        raise _damage(store, path, problem) from missing
    if digest is not None and sha256(stored).hexdigest() != digest:
        problem = f"the manifest of {run} differs from the written one; it was changed"
        raise _damage(store, path, problem)
    try:
        manifest = Manifest.decode(stored)
    except ValueError as error:  # JSON's and Unicode's errors are ValueErrors
        problem = f"the manifest of {run} cannot be read: {error}"
        raise _damage(store, path, problem) from error
    if (manifest.partition, manifest.run_id) != (partition, run_id):
        other = f"run {manifest.run_id} of {manifest.partition}"
        raise _damage(store, path, f"the manifest is of {other}, not of {run}")
    return manifest


def _read(store: Store, path: str) -> bytes:
    """Read in pieces: a file allocates memory for the whole number of bytes that is requested."""
    content = b""
    with store.read(path) as file:
        while len(content) <= MAX_MANIFEST_BYTES and (piece := file.read(CHUNK_BYTES)):
            content += piece
    return content


def _damage(store: Store, path: str, problem: str) -> Damaged:
    return Damaged(f"{store.name}: {problem}", path=path, backend=store.backend.name)
