"""Filters that operators and programs pass to queries. Free of SQLAlchemy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from .model import DeadLetterStatus


class DeadLetterConditions(NamedTuple):
    """Which dead letters. None: any. Immutable."""

    ids: Sequence[int] | None = None
    status: DeadLetterStatus | None = None
    kind: str | None = None
    reason: str | None = None
    error: str | None = None
    """Text in the error, in any case, or the signature."""
    signature: str | None = None
    """An empty text: without a signature."""
    job_id: int | None = None
    blocked: bool | None = None
    since: datetime | None = None
    """Died since then, for the first time or as a replay."""
    until: datetime | None = None
    """Died last before then."""
    source: str | None = None
    """Source of the message. "*": any source."""
