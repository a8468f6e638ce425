"""Rates: how many extractions may begin now, of a dataset and of a source. What is left is in their rows: one for all workers."""

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
from ..model import Lease
from ..retry_schedule import Terms
from ..store.rows import Held, upsert

LEAST = 0.05
"""Seconds between two looks for what a rate allows: half of what may begin at once after a pause."""


class Bucket(NamedTuple):
    """What a rate allows now."""

    rate: float
    tokens: float

    @property
    def room(self) -> int:
        """How many may begin."""
        return int(self.tokens + 1e-9)

    def after(self, spent: int, /) -> float:
        """Seconds until one more may begin, after so many."""
        return max(0.0, (1 - self.tokens + spent) / self.rate)


@dataclass
class Rates:
    """What the rates of datasets and sources allow. For one claim, which holds the rows of the sources."""

    datasets: Mapping[tuple[str, str], Bucket] = field(default_factory=dict)
    sources: Mapping[str, Bucket] = field(default_factory=dict)
    spent: Counter[Any] = field(default_factory=Counter)

    def narrow(self, of_dataset: dict[tuple[str, str], int], at_source: dict[str, int], /) -> None:
        """Take from what may begin what the rates do not allow."""
        for name, bucket in self.datasets.items():
            of_dataset[name] = min(of_dataset[name], bucket.room)
        for at, bucket in self.sources.items():
            at_source[at] = min(at_source[at], bucket.room)

    def spend(self, session: Session, leases: Collection[Lease], now: datetime, /) -> None:
        """Write down what is left after these."""
        self.spent.update((one.partition.source, one.partition.query_name) for one in leases)
        self.spent.update(one.partition.source for one in leases)
        for (name, query), bucket in sorted(self.datasets.items()):
            if many := self.spent[name, query]:
                left: dict[str, Any] = {"tokens": bucket.tokens - many, "filled_at": now}
                new = upsert(session, dataset).values(source=name, query_name=query, **left)
                session.core.execute(new.on_conflict_do_update(index_elements=list(dataset.primary_key), set_=left))
        for at, bucket in sorted(self.sources.items()):
            if many := self.spent[at]:
                left = {"tokens": bucket.tokens - many, "filled_at": now}
                session.core.execute(update(source).where(source.c.source == at).values(left))

    def after(self, waiting: Collection[tuple[str, str]], /) -> float | None:
        """Seconds until a rate lets more of these datasets begin; None: no rate is in their way."""
        soon = []
        for name in waiting:
            own, its = self.datasets.get(name), self.sources.get(name[0])
            waits = [bucket.after(self.spent[key]) for key, bucket in ((name, own), (name[0], its)) if bucket is not None]
            if any(waits):
                soon.append(max(waits))
        return max(LEAST, min(soon)) if soon else None


def rated(session: Session, terms: Mapping[tuple[str, str], Terms], held: Mapping[str, Held], now: datetime, /) -> Rates:
    """What may begin now. held: the rows of the sources, which nobody else has meanwhile."""
    slowest: dict[str, float] = {}
    for one in terms.values():
        if one.source_rate is not None:
            slowest[one.source] = min(one.source_rate, slowest.get(one.source, one.source_rate))
    sources = {at: _bucket(rate, held[at].tokens, held[at].filled_at, now) for at, rate in slowest.items()}
    own = {name: one.rate for name, one in terms.items() if one.rate is not None}
    if not own:
        return Rates({}, sources)
    at = dataset.c
    query = select(at.source, at.query_name, at.tokens, at.filled_at).where(at.source.in_(sorted({name for name, _ in own})))
    stored = {(row[0], row[1]): (row[2], row[3]) for row in session.core.execute(query)}
    return Rates({name: _bucket(rate, *stored.get(name, (None, None)), now) for name, rate in own.items()}, sources)


def _bucket(rate: float, tokens: float | None, since: datetime | None, now: datetime) -> Bucket:
    return Bucket(rate, refill_tokens(tokens, 0.0 if since is None else (now - since).total_seconds(), rate))
