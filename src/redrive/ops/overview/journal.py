"""The journal of a ledger: what happened last to jobs and partitions, read from their rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from ...journal.redaction import redact, redact_text
from ...ledger.ledger import Ledger
from ...ledger.queries.journal import EVENTS, JournalEntry, tail
from ...partitions.store.overview import find_failing
from ...partitions.store.rows import PartitionRow
from ..partitions.datasets import label, parse_label
from ..project.user_code import suggest

__all__ = ["JournalEntry", "Tail", "journal"]

OVERLAP = timedelta(seconds=5)
"""Records of a transaction that ends late may be older than records that were already read."""
MAX_REMEMBERED = 10_000
"""Ids of records that a tail remembers, so that it returns each once."""
MAX_READ = 500
"""Records of one read."""
REJECTED = "rejected"


def journal(
    ledger: Ledger,
    /,
    *,
    kind: str | None = None,
    events: Collection[str] = (),
    since: datetime | None = None,
    limit: int = 100,
) -> list[JournalEntry]:
    """Return the last records, newest first. Of partitions: rejections that are not fixed yet."""
    known = sorted((*EVENTS, REJECTED))
    for name in events:
        if name not in known:
            raise ValueError(f"no event {name!r}: {', '.join(known)}{suggest(name, known)}")
    names, limit = frozenset(events), min(limit, MAX_READ)
    records: list[JournalEntry] = []
    with ledger.reading() as connection:
        if names != {REJECTED}:
            job_events = names - {REJECTED} or None
            records += map(
                _without_secrets,
                tail(connection, since=since, kind=kind, events=job_events, limit=limit),
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

    def look(self) -> list[JournalEntry]:
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

    def _first_look(self) -> list[JournalEntry]:
        since = self._ledger.now() - OVERLAP
        records = self._read(None, MAX_READ)
        # Also remember recent records beyond the limit, so that the next look does not return them.
        self._known.extend(record.id for record in records if record.at >= since)
        self._since = since
        return records[: self._limit][::-1]

    def _read(self, since: datetime | None, limit: int) -> list[JournalEntry]:
        return journal(self._ledger, kind=self._kind, events=self._events, since=since, limit=limit)

    def __iter__(self) -> Iterator[list[JournalEntry]]:
        while True:
            yield self.look()


def _without_secrets(entry: JournalEntry) -> JournalEntry:
    return replace(
        entry,
        reason=None if entry.reason is None else redact_text(entry.reason),
        error=None if entry.error is None else redact_text(entry.error),
        ids=redact(entry.ids),
    )


def _rejection(row: PartitionRow, at: datetime) -> JournalEntry:
    error = (row.error or "").strip()
    return JournalEntry(
        id=f"partition {row.id} {row.attempt_count}",
        at=at,
        event=REJECTED,
        kind=label(*row.dataset),
        key=str(row.partition),
        attempt=row.attempt_count,
        reason=row.reason,
        error=redact_text(error) if error else None,
    )
