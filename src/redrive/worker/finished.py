"""Finished: an attempt that was made, on its way back to the ledger."""

from __future__ import annotations

from typing import NamedTuple

from ..ledger.record import Lease
from .kind import Kind


class Finished(NamedTuple):
    """An attempt that was made."""

    kind: Kind
    lease: Lease
    result: bytes | None
    error: BaseException | None
    seconds: float
    settled: bool = False
    """The work's own transaction has settled it already."""
    late: bool = False
    """In its own transaction it came too late; that was rolled back, and counted."""
    unstarted: bool = False
    """Its deadline had passed before it began."""
