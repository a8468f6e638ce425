"""FileInfo: what a backend tells of a file without its bytes. Capabilities: what a backend can promise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


class FileInfo(NamedTuple):
    """A file, as a listing has it. Immutable.

    Attributes:
        path: The path.
        size: Number of bytes.
        modified_at: Time of the last change, with time zone. None if the backend does not tell.
        etag: Changes with the bytes. None if the backend has none, and in listings of a disk or by
            PyArrow.
    """

    path: str
    size: int
    modified_at: datetime | None = None
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend guarantees beyond the interface. Immutable.

    If a value is False, the method works without that guarantee.

    Attributes:
        atomic_write: `write_atomic`: readers get the old or the new bytes, even if the writer dies.
        exclusive_create: `create`: of several at the same time, exactly one wins.
        atomic_move: `move` is one step: the file is never at both places or at none.
        native_copy: `copy` is done by the backend, without transferring the bytes.
        empty_folders: Folders are real and stay when their last file is deleted.
    """

    atomic_write: bool
    exclusive_create: bool
    atomic_move: bool
    native_copy: bool
    empty_folders: bool
