"""Rate limits: how many extractions of a dataset and of a source may start now.

The tokens are stored with the dataset and the source, so that all workers share them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import select, update

from ...ledger.db.partition_tables import dataset, source
from ...ledger.db.session import Session
from ...ledger.jobs.limits import refill_tokens
from ..model import PartitionLease
from ..retry_schedule import DatasetLimits
from ..store.rows import SourceRow
from ..store.statements import upsert

MIN_WAIT_SECONDS = 0.05
"""Time between two claims for a rate limit: half of what may start at once after a pause."""


class TokenBucket(NamedTuple):
    """What a rate allows now."""

    rate: float
    tokens: float

    @property
    def room(self) -> int:
        """How many may start."""
        return int(self.tokens + 1e-9)

    def seconds_after(self, spent: int, /) -> float:
        """Return the seconds until one more may start, after this many."""
        return max(0.0, (1 - self.tokens + spent) / self.rate)


@dataclass
class RateLimits:
    """The token buckets of datasets and sources. For one claim, which has locked the sources."""

    datasets: Mapping[tuple[str, str], TokenBucket] = field(default_factory=dict)
    sources: Mapping[str, TokenBucket] = field(default_factory=dict)
    spent: Counter[Any] = field(default_factory=Counter)
    """Started leases by dataset and by source."""

    def limit(
        self, dataset_room: dict[tuple[str, str], int], source_room: dict[str, int], /
    ) -> None:
        """Lower the numbers of leases that may start to what the rates allow."""
        for name, bucket in self.datasets.items():
            dataset_room[name] = min(dataset_room[name], bucket.room)
        for source_name, bucket in self.sources.items():
            source_room[source_name] = min(source_room[source_name], bucket.room)

    def spend(self, session: Session, leases: Collection[PartitionLease], now: datetime, /) -> None:
        """Store the tokens that are left after these leases."""
        keys = [lease.partition for lease in leases]
        self.spent.update((key.source, key.query_name) for key in keys)
        self.spent.update(key.source for key in keys)
        for (name, query), bucket in sorted(self.datasets.items()):
            if spent := self.spent[name, query]:
                left: dict[str, Any] = {"tokens": bucket.tokens - spent, "filled_at": now}
                new = upsert(session, dataset).values(source=name, query_name=query, **left)
                index = list(dataset.primary_key)
                session.core.execute(new.on_conflict_do_update(index_elements=index, set_=left))
        for name, bucket in sorted(self.sources.items()):
            if spent := self.spent[name]:
                left = {"tokens": bucket.tokens - spent, "filled_at": now}
                session.core.execute(update(source).where(source.c.source == name).values(left))

    def seconds_until_room(self, datasets: Collection[tuple[str, str]], /) -> float | None:
        """Return when a rate allows more of these datasets. None: no rate limits them."""
        waits = []
        for name in datasets:
            buckets = ((name, self.datasets.get(name)), (name[0], self.sources.get(name[0])))
            own = [
                bucket.seconds_after(self.spent[key])
                for key, bucket in buckets
                if bucket is not None
            ]
            if any(own):
                waits.append(max(own))
        return max(MIN_WAIT_SECONDS, min(waits)) if waits else None


def load_rate_limits(
    session: Session,
    limits: Mapping[tuple[str, str], DatasetLimits],
    sources: Mapping[str, SourceRow],
    now: datetime,
    /,
) -> RateLimits:
    """Return what may start now.

    Args:
        limits: The limits of the datasets.
        sources: The rows of their sources, locked.
    """
    source_rates: dict[str, float] = {}
    for each in limits.values():
        if each.source_rate is not None:
            known = source_rates.get(each.source, each.source_rate)
            source_rates[each.source] = min(each.source_rate, known)
    source_buckets = {
        name: _bucket(rate, sources[name].tokens, sources[name].filled_at, now)
        for name, rate in source_rates.items()
    }
    rates = {name: each.rate for name, each in limits.items() if each.rate is not None}
    if not rates:
        return RateLimits({}, source_buckets)
    at = dataset.c
    query = select(at.source, at.query_name, at.tokens, at.filled_at)
    query = query.where(at.source.in_(sorted({name for name, _ in rates})))
    stored = {(row[0], row[1]): (row[2], row[3]) for row in session.core.execute(query)}
    dataset_buckets = {
        name: _bucket(rate, *stored.get(name, (None, None)), now) for name, rate in rates.items()
    }
    return RateLimits(dataset_buckets, source_buckets)


def _bucket(
    rate: float, tokens: float | None, since: datetime | None, now: datetime
) -> TokenBucket:
    elapsed = 0.0 if since is None else (now - since).total_seconds()
    return TokenBucket(rate, refill_tokens(tokens, elapsed, rate))
