"""The journal, as the ledger's own rows have it: what happened last, to any job or partition; and on from there."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...journal.redaction import redact, redact_text
from ..partitions.datasets import label, meaning
from ..target.imported import meant

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger
    from ...ledger.queries.journal import JournalEntry
    from ...partitions.store.overview import Troubled

OVERLAP = timedelta(seconds=5)
"""What was written in a transaction that ended later than another's may be older than what was read already."""
KNOWN = 10_000
"""What was read is remembered so far back."""
MOST = 500
"""In one look."""
REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened to a job or a partition, or that somebody decided; without secrets."""

    id: str
    at: datetime
    event: str
    """submitted, failed, lost, returned, done, dead; of a partition rejected; or what was decided, such as dead.replay."""
    kind: str | None
    """Of a partition: its dataset, such as crm/orders."""
    key: str | None
    """Of a partition: its name."""
    job_id: int | None
    attempt: int | None
    worker: str | None
    seconds: float | None
    """How long the attempt took."""
    reason: str | None
    error: str | None
    ids: Mapping[str, str]
    """Correlation ids."""
    dead_id: int | None
    actor: str | None


def journal(
    ledger: Ledger, /, *, kind: str | None = None, events: Collection[str] = (), since: datetime | None = None, limit: int = 100
) -> list[Happening]:
    """The last so many, the newest first. Of partitions what was rejected, and is not mended yet."""
    from ...ledger.queries.journal import EVENTS, tail  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ...partitions.store.overview import troubled  # noqa: PLC0415  # the same

    known = sorted((*EVENTS, REJECTED))
    for name in events:
        if name not in known:
            raise ValueError(f"no event {name!r}: {', '.join(known)}{meant(name, known)}")
    asked, most = frozenset(events), min(limit, MOST)
    found: list[Happening] = []
    with ledger.reading() as connection:
        if asked != {REJECTED}:
            others = asked - {REJECTED} or None
            found += map(_happening, tail(connection, since=since, kind=kind, events=others, limit=most))
        only = None if kind is None else meaning(kind)
        if (not asked or REJECTED in asked) and (kind is None or only is not None):
            some = troubled(connection, dataset=only, since=since, each=most)
            found += [_rejected(one, one.verdict_at) for one in some if one.verdict_at and one.last_verdict == REJECTED]
    return sorted(found, key=lambda one: (one.at, one.id), reverse=True)[:most]


class Tail:
    """Reads on: each look gives what has come since the one before, the oldest first. Belongs to one thread."""

    def __init__(self, ledger: Ledger, /, *, kind: str | None = None, events: Collection[str] = (), limit: int = 20) -> None:
        """limit: how many of those before now the first look gives."""
        self._ledger, self._kind, self._events, self._limit = ledger, kind, events, limit
        self._known: deque[str] = deque(maxlen=KNOWN)
        self._since: datetime | None = None

    def look(self) -> list[Happening]:
        """What is new."""
        if self._since is None:
            return self._first()
        found = self._read(self._since, MOST)
        known = set(self._known)
        fresh = [one for one in reversed(found) if one.id not in known]
        self._known.extend(one.id for one in fresh)
        if found:
            self._since = max(self._since, found[0].at - OVERLAP)
        return fresh

    def _first(self) -> list[Happening]:
        since = self._ledger.now() - OVERLAP
        before = self._read(None, MOST)
        self._known.extend(one.id for one in before if one.at >= since)  # those before the ones that were asked for, too
        self._since = since
        return before[: self._limit][::-1]

    def _read(self, since: datetime | None, limit: int) -> list[Happening]:
        return journal(self._ledger, kind=self._kind, events=self._events, since=since, limit=limit)

    def __iter__(self) -> Iterator[list[Happening]]:
        while True:
            yield self.look()


def _happening(one: JournalEntry) -> Happening:
    took = None if one.started_at is None else max(0.0, (one.at - one.started_at).total_seconds())
    return Happening(
        id=one.id, at=one.at, event=one.event, kind=one.kind, key=one.key, job_id=one.job_id, attempt=one.attempt,
        worker=one.worker, seconds=took, reason=None if one.reason is None else redact_text(one.reason),
        error=None if one.error is None else redact_text(one.error), ids=redact(json.loads(one.ids) if one.ids else {}),
        dead_id=one.dead_id, actor=one.actor,
    )  # fmt: skip


def _rejected(one: Troubled, at: datetime) -> Happening:
    said = (one.error or "").strip()
    return Happening(
        id=f"partition {one.id} {one.attempt_count}", at=at, event=REJECTED, kind=label(*one.dataset), key=str(one.partition),
        job_id=None, attempt=one.attempt_count, worker=None, seconds=None, reason=one.reason,
        error=redact_text(said) if said else None, ids={}, dead_id=None, actor=None,
    )  # fmt: skip
