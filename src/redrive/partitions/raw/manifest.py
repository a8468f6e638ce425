"""Manifest: what one run wrote, said last. A run counts from the moment that its manifest is there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, timezone
from hashlib import sha256
from typing import Any, Self

from ...errors import Damaged, NotFound
from ...storage.body import CHUNK_BYTES
from ...storage.store import Store
from ..key import Partition
from .layout import folder_of, manifest_of

VERSION = 1
MOST = 64 * 1024 * 1024
"""Bytes: what is larger is no manifest."""


@dataclass(frozen=True, slots=True)
class Written:
    """One file of a run. Immutable: anything may share it."""

    name: str
    size: int
    """In bytes."""
    sha256: str
    """In hexadecimal digits."""
    rows: int | None
    """None where nobody said, and its format does not tell."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one run wrote. Immutable: anything may share it."""

    partition: Partition
    run_id: str
    files: tuple[Written, ...]
    written_at: datetime

    @property
    def row_count(self) -> int:
        """Rows of all files that say how many they have."""
        return sum(file.rows or 0 for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def path(self, file: Written, /) -> str:
        """Where a file of it is."""
        return f"{folder_of(self.partition, self.run_id)}/{file.name}"

    def encoded(self) -> bytes:
        """As it is stored: the same manifest has the same bytes."""
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
            "files": [{"name": file.name, "size": file.size, "sha256": file.sha256, "rows": file.rows} for file in self.files],
        }
        return (json.dumps(document, indent=1) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of its bytes, which the ledger keeps."""
        return sha256(self.encoded()).hexdigest()

    @classmethod
    def decoded(cls, stored: bytes, /) -> Self:
        """From its bytes; ValueError says what is wrong with them."""
        found = json.loads(stored)
        if not isinstance(found, dict) or "redrive_manifest" not in found:
            raise ValueError("not a manifest of Redrive")
        if found["redrive_manifest"] != VERSION:
            raise ValueError(f"version {found['redrive_manifest']!r} of the manifest; this code reads {VERSION}")
        try:
            files = tuple(
                Written(str(one["name"]), int(one["size"]), str(one["sha256"]), _rows(one["rows"])) for one in found["files"]
            )
            day = date.fromisoformat(found["logical_date"])
            key = Partition(found["source"], found["customer_id"], found["query_name"], day)
            return cls(key, found["run_id"], files, datetime.fromisoformat(found["written_at"]))
        except (KeyError, TypeError) as wrong:
            raise ValueError(f"it lacks {wrong}" if isinstance(wrong, KeyError) else str(wrong)) from None


def loaded(store: Store, partition: Partition, run_id: str, /, *, digest: str | None = None) -> Manifest:
    """The manifest of a run. Damaged says what is wrong: it is gone, cannot be read, is another's, or has been changed.

    digest: what the ledger has of it.
    """
    path = manifest_of(partition, run_id)
    try:
        stored = _read(store, path)
    except NotFound as missing:
        raise _damaged(
            store, path, f"run {run_id} of {partition} has no manifest: it was never ended, or has been deleted"
        ) from missing
    if digest is not None and sha256(stored).hexdigest() != digest:
        raise _damaged(store, path, f"the manifest of run {run_id} of {partition} differs from the written one; it was changed")
    try:
        found = Manifest.decoded(stored)
    except ValueError as wrong:  # JSON's and Unicode's errors are some of these
        raise _damaged(store, path, f"the manifest of run {run_id} of {partition} cannot be read: {wrong}") from wrong
    if (found.partition, found.run_id) != (partition, run_id):
        raise _damaged(
            store, path, f"the manifest is of run {found.run_id} of {found.partition}, not of run {run_id} of {partition}"
        )
    return found


def _read(store: Store, path: str) -> bytes:
    """All of it, a piece at a time: a file makes room beforehand for all that it is asked for."""
    stored = b""
    with store.read(path) as file:
        while len(stored) <= MOST and (piece := file.read(CHUNK_BYTES)):
            stored += piece
    return stored


def _damaged(store: Store, path: str, says: str) -> Damaged:
    return Damaged(f"{store.name}: {says}", path=path, backend=store.backend.name)


def _rows(value: Any) -> int | None:
    return None if value is None else int(value)
