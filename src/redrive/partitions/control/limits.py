"""Limits of partitions: of automatic retries, and of starts by rate.

Retries have an attempt budget with its grants, and a maximum age. Claims, rejections, lost runs and
explanations all use these rules. The tokens of rates are stored with the dataset and the source, so
that all workers share them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select, update

from ...core.token_bucket import refill_tokens
from ...ledger.db.partition_tables import dataset, marker, run, source
from ...ledger.db.session import Session
from ..key import ONE_DAY
from ..model import Lane, Marker, PartitionLease
from ..retry_schedule import AttemptBudget, DatasetLimits, Policy
from ..store.rows import PartitionRow, PartitionWork, SourceRow
from ..store.statements import upsert

ON_TIME = timedelta(hours=36)
"""A schedule runs a day on the day after it. In any time zone that ends 36 hours after the day's
end in UTC.
"""
CLEARED = "clear_terminal"
UNPAUSED = "unpause"
REQUESTED = (CLEARED, UNPAUSED)
"""Causes of a grant that is an operator's request for this one partition."""
_REQUESTED = select(marker.c.partition_id).where(
    marker.c.kind == "grant", marker.c.cause.in_(REQUESTED)
)
_LAST_SCHEDULED = select(func.max(run.c.leased_at, type_=run.c.leased_at.type)).where(
    run.c.lane == int(Lane.FRESH)
)


def attempt_budget(policy: Policy, attempt_count: int, grant: Marker | None, /) -> AttemptBudget:
    """Return the used and allowed attempts of a partition.

    A grant restarts the count. It may also set how many attempts are allowed.
    """
    if grant is None:
        return AttemptBudget(attempt_count, policy.max_attempts)
    limit = policy.max_attempts if grant.amount is None else grant.amount
    return AttemptBudget(attempt_count - grant.attempts, limit)


def age_limit(
    policy: Policy,
    logical_date: date,
    /,
    *,
    requested: bool = False,
    scheduled_at: datetime | None = None,
) -> datetime | None:
    """Return when a partition is too old to be retried. None: never. Pure.

    Args:
        policy: The policy of its dataset, with `max_age`.
        logical_date: Its day. Its age counts from the end of that day.
        requested: An operator or a backfill requested it: it is old by nature.
        scheduled_at: When the schedule last started it. A run that was not on time, and started
            past the limit, is catch-up work. The schedule requested it nevertheless, so that only
            `max_attempts` limits it.
    """
    if policy.max_age is None or requested:
        return None
    day_end = datetime.combine(logical_date, time(), timezone.utc) + ONE_DAY
    limit = day_end + policy.max_age
    is_catch_up = scheduled_at is not None and scheduled_at >= max(limit, day_end + ON_TIME)
    return None if is_catch_up else limit


def is_requested(lane: int, sweep_id: int, /) -> bool:
    """Return whether queued work is an operator's: a backfill, or a sweep of retries. Pure."""
    return lane == Lane.BACKFILL or (lane == Lane.RETRY and sweep_id > 0)


def stored_age_limit(
    connection: Connection,
    policy: Policy,
    row: PartitionRow,
    work: PartitionWork,
    before: datetime,
    /,
) -> datetime | None:
    """Return the age limit of a stored partition if it is not later than `before`."""
    limit = age_limit(policy, row.logical_date, requested=is_requested(work.lane, work.sweep_id))
    if limit is None or limit > before:
        return None  # nearly always; only an old partition costs a query
    if connection.execute(_REQUESTED.where(marker.c.partition_id == row.id)).first() is not None:
        return None
    scheduled_at = connection.execute(_LAST_SCHEDULED.where(run.c.partition_id == row.id)).scalar()
    if work.lane == Lane.FRESH and scheduled_at is None:
        return None  # the schedule requested it, and its first run has not started
    return age_limit(policy, row.logical_date, scheduled_at=scheduled_at)


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
