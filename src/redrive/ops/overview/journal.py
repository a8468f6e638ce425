"""The journal of a ledger: what happened last to jobs and partitions, read from their rows."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from ...journal.redaction import redact, redact_text
from ...ledger.ledger import Ledger
from ...ledger.queries.journal import EVENTS, JournalEntry, tail
from ...partitions.store.overview import find_failing
from ...partitions.store.rows import PartitionRow
from ..partitions.datasets import label, parse_label
from ..project.user_code import suggest

OVERLAP = timedelta(seconds=5)
"""Records of a transaction that ends late may be older than records that were already read."""
MAX_REMEMBERED = 10_000
"""Ids of records that a tail remembers, so that it returns each once."""
MAX_READ = 500
"""Records of one read."""
REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Happening:
    """An event of a job or a partition, or a decision of an operator, without secrets."""

    id: str
    at: datetime
    event: str
    """submitted, failed, lost, returned, done or dead. Of a partition: rejected. Or a decision,
    such as dead.replay."""
    kind: str | None
    """Job type, or dataset of a partition such as crm/orders."""
    key: str | None
    """Job key, or name of a partition."""
    job_id: int | None
    attempt: int | None
    worker: str | None
    seconds: float | None
    """Duration of the attempt."""
    reason: str | None
    error: str | None
    ids: Mapping[str, str]
    """Correlation ids."""
    dead_id: int | None
    actor: str | None


def journal(
    ledger: Ledger,
    /,
    *,
    kind: str | None = None,
    events: Collection[str] = (),
    since: datetime | None = None,
    limit: int = 100,
) -> list[Happening]:
    """Return the last records, newest first. Of partitions: rejections that are not fixed yet."""
    known = sorted((*EVENTS, REJECTED))
    for name in events:
        if name not in known:
            raise ValueError(f"no event {name!r}: {', '.join(known)}{suggest(name, known)}")
    names, limit = frozenset(events), min(limit, MAX_READ)
    records: list[Happening] = []
    with ledger.reading() as connection:
        if names != {REJECTED}:
            job_events = names - {REJECTED} or None
            records += map(
                _record, tail(connection, since=since, kind=kind, events=job_events, limit=limit)
            )
        dataset = None if kind is None else parse_label(kind)
        if (not names or REJECTED in names) and (kind is None or dataset is not None):
            rows = find_failing(connection, dataset=dataset, since=since, each=limit)
            rejected = [row for row in rows if row.last_verdict == REJECTED]
            records += [_rejection(row, row.verdict_at) for row in rejected if row.verdict_at]
    return sorted(records, key=lambda record: (record.at, record.id), reverse=True)[:limit]


class Tail:
    """Follows the records: each `look` returns the new ones, oldest first.

    Belongs to one thread.
    """

    def __init__(
        self,
        ledger: Ledger,
        /,
        *,
        kind: str | None = None,
        events: Collection[str] = (),
        limit: int = 20,
    ) -> None:
        """Start now.

        `limit` is the maximum number of earlier records that the first look returns.
        """
        self._ledger, self._kind, self._events, self._limit = ledger, kind, events, limit
        self._known: deque[str] = deque(maxlen=MAX_REMEMBERED)
        self._since: datetime | None = None

    def look(self) -> list[Happening]:
        """Return the new records."""
        if self._since is None:
            return self._first_look()
        records = self._read(self._since, MAX_READ)
        known = set(self._known)
        new = [record for record in reversed(records) if record.id not in known]
        self._known.extend(record.id for record in new)
        if records:
            self._since = max(self._since, records[0].at - OVERLAP)
        return new

    def _first_look(self) -> list[Happening]:
        since = self._ledger.now() - OVERLAP
        records = self._read(None, MAX_READ)
        # Also remember recent records beyond the limit, so that the next look does not return them.
        self._known.extend(record.id for record in records if record.at >= since)
        self._since = since
        return records[: self._limit][::-1]

    def _read(self, since: datetime | None, limit: int) -> list[Happening]:
        return journal(self._ledger, kind=self._kind, events=self._events, since=since, limit=limit)

    def __iter__(self) -> Iterator[list[Happening]]:
        while True:
            yield self.look()


def _record(row: JournalEntry) -> Happening:
    started = row.started_at
    return Happening(
        id=row.id,
        at=row.at,
        event=row.event,
        kind=row.kind,
        key=row.key,
        job_id=row.job_id,
        attempt=row.attempt,
        worker=row.worker,
        seconds=None if started is None else max(0.0, (row.at - started).total_seconds()),
        reason=None if row.reason is None else redact_text(row.reason),
        error=None if row.error is None else redact_text(row.error),
        ids=redact(json.loads(row.ids) if row.ids else {}),
        dead_id=row.dead_id,
        actor=row.actor,
    )


def _rejection(row: PartitionRow, at: datetime) -> Happening:
    error = (row.error or "").strip()
    return Happening(
        id=f"partition {row.id} {row.attempt_count}",
        at=at,
        event=REJECTED,
        kind=label(*row.dataset),
        key=str(row.partition),
        job_id=None,
        attempt=row.attempt_count,
        worker=None,
        seconds=None,
        reason=row.reason,
        error=redact_text(error) if error else None,
        ids={},
        dead_id=None,
        actor=None,
    )
