"""FileInfo: what a backend tells of a file without its bytes. Capabilities: what a backend can promise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


class FileInfo(NamedTuple):
    """One file, as a listing has it. Immutable: anything may share one."""

    path: str
    size: int
    modified_at: datetime | None = None
    """Aware; None where the backend does not tell."""
    etag: str | None = None
    """Changes whenever the bytes do; None where the backend has no such thing, and in listings of a disk or by PyArrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend promises beyond the interface. Where it says False, the method works, without that promise."""

    atomic_write: bool
    """`write_atomic`: whoever reads gets the old bytes or the new ones, also if the writer dies half way."""
    exclusive_create: bool
    """`create`: of several at once exactly one wins. False: the backend can only look first, then write."""
    atomic_move: bool
    """`move` is one step: the file is never at both places, or at none."""
    native_copy: bool
    """`copy` is done by the backend: the bytes don't travel through here."""
    empty_folders: bool
    """Folders are real, and stay when their last file goes; elsewhere a folder is the beginning of a name."""
