"""Limits of the tenants of a job type: concurrency and rate of each tenant, over all workers.

A claim runs under the lock of its job type, see `limits`. It looks at the next tenants with due
jobs, and gives each as many jobs as its limits allow. A tenant at its limit does not hold up the
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, Select, delete, func, select, union_all, update

from ...core.token_bucket import refill_tokens
from ..db.clock import now_on
from ..db.compiled import sql_int
from ..db.job_tables import tenant as tenant_table
from ..db.session import Session, upsert
from ..db.tables import SEQUENCED, job
from ..model import HELD, LEASED, PRIORITIES, READY, Lease
from ..store.protocol import BELOW_ALL_PRIORITIES, ClaimOptions, JobStore

MAX_ROUNDS = 4
"""Looks at tenants of one priority in a claim, if the first ones have too few jobs or tokens."""
MIN_LATER_ROUND = 400
"""Claim size of later rounds: they look at 100 tenants, because the first ones have no tokens."""
NO_TENANT = "-"
"""Tenant of jobs that were submitted before their job type had tenants."""
MAX_ADOPTED = 100
"""Jobs at the front of the queue that get `NO_TENANT` at once."""
KEEP_TOKENS = timedelta(days=7)
"""Time after which the tokens of a tenant without jobs are deleted."""


class TenantLimit(NamedTuple):
    """The limits of each tenant of a job type."""

    concurrency: int | None = None
    rate: float | None = None
    """Starts per second."""


class _Allowance:
    """How many more jobs each tenant may start, in one claim."""

    def __init__(self, session: Session, kind: str, limit: TenantLimit, now: datetime) -> None:
        self._session, self._kind, self._limit, self._now = session, kind, limit, now
        self._leased: Counter[str] = Counter()
        self._tokens: dict[str, float] = {}
        self.started: Counter[str] = Counter()
        if limit.concurrency is not None:
            self._leased.update(_count_leased(session, kind))

    @property
    def at_limit(self) -> list[str]:
        """Tenants that run as many jobs as they may."""
        most = self._limit.concurrency
        return [] if most is None else [name for name, n in self._leased.items() if n >= most]

    def of(self, tenants: Sequence[str], most: int) -> dict[str, int]:
        """Return how many jobs each of these tenants may start, up to a number."""
        self._load_tokens(tenants)
        return {name: min(most, self._free_slots(name)) for name in tenants}

    def _free_slots(self, name: str) -> int:
        concurrency, rate = self._limit
        left = MAX_ADOPTED**2
        if concurrency is not None:
            left = concurrency - self._leased[name]
        if rate is not None:
            left = min(left, int(self._tokens[name] - self.started[name]))
        return max(0, left)

    def _load_tokens(self, tenants: Sequence[str]) -> None:
        rate = self._limit.rate
        new = [name for name in tenants if name not in self._tokens]
        if rate is None or not new:
            return
        columns = (tenant_table.c.tenant, tenant_table.c.tokens, tenant_table.c.filled_at)
        is_asked = (tenant_table.c.kind == self._kind, tenant_table.c.tenant.in_(new))
        full = refill_tokens(None, 0.0, rate)
        self._tokens.update(dict.fromkeys(new, full))
        for name, tokens, filled_at in self._session.core.execute(
            select(*columns).where(*is_asked)
        ):
            seconds = (self._now - filled_at).total_seconds()
            self._tokens[name] = refill_tokens(tokens, seconds, rate)

    def note_started(self, leases: Collection[Lease], tenants: Collection[str]) -> None:
        """Count the jobs that a round has claimed."""
        if len(tenants) == 1:
            counts = Counter(dict.fromkeys(tenants, len(leases)))
        else:
            ids = [lease.job_id for lease in leases]
            query = select(job.c.tenant, func.count()).where(job.c.id.in_(ids))
            rows = self._session.core.execute(query.group_by(job.c.tenant))
            counts = Counter({row[0]: row[1] for row in rows})
        self.started.update(counts)
        self._leased.update(counts)

    def save_tokens(self) -> None:
        """Write the tokens of the tenants that have started jobs."""
        if self._limit.rate is None:
            return
        new = upsert(self._session, tenant_table)
        saved = new.on_conflict_do_update(
            index_elements=[tenant_table.c.kind, tenant_table.c.tenant],
            set_={"tokens": new.excluded.tokens, "filled_at": new.excluded.filled_at},
        )
        rows = [
            {
                "kind": self._kind,
                "tenant": name,
                "tokens": self._tokens[name] - count,
                "filled_at": self._now,
            }
            for name, count in self.started.items()
            if count
        ]
        if rows:
            self._session.core.execute(saved, rows)

    def seconds_until_token(self) -> float | None:
        """Return when the first tenant without a token gets one."""
        rate = self._limit.rate
        if rate is None:
            return None
        left = (self._tokens[name] - self.started[name] for name in self._tokens)
        return min(((1 - each) / rate for each in left if each < 1), default=None)


def claim(
    session: Session, store: JobStore, options: ClaimOptions, limit: TenantLimit, /
) -> tuple[list[Lease], float | None]:
    """Claim as many jobs of the tenants of one job type as their limits allow.

    Args:
        session: A session with a transaction that holds the lock of the job type.
        store: The statements.
        options: The claim, for one job type.
        limit: The limits of each tenant.

    Returns:
        The leases, and the seconds until a tenant without a token gets one.
    """
    (kind,) = options.kinds
    allowance = _Allowance(session, kind, limit, now_on(session))
    leases: list[Lease] = []
    seen: set[tuple[int, str]] = set()
    beyond = BELOW_ALL_PRIORITIES
    for number in range(1, MAX_ROUNDS * len(PRIORITIES) + 1):
        left = options.total - len(leases)
        most = left if number == 1 else max(left, MIN_LATER_ROUND)
        due = store.due_tenants(session, kind, beyond, allowance.at_limit, most)
        if due.priority is None:
            break
        shares = share_out(due.tenants, allowance.of(due.tenants, left), left)
        if shares:
            rest = options._replace(kinds={kind: left}, total=left)
            claimed = store.claim_shares_in(session, rest, due.priority, shares)
            leases += claimed
            allowance.note_started(claimed, shares)
        is_full = len(leases) >= options.total
        # A full claim has not come to the tenants after the last one that got a share.
        store.end_turns(kind, beyond, next(reversed(shares), due.last) if is_full else due.last)
        if is_full:
            break
        looked = {(due.priority, name) for name in due.tenants}
        if seen >= looked or number % MAX_ROUNDS == 0:
            # Urgent jobs of tenants at their limits do not hold up less urgent ones of others.
            beyond = due.priority
        seen |= looked
    _adopt_first_jobs(session, kind, MAX_ADOPTED if len(leases) < options.total else 1)
    allowance.save_tokens()
    return leases, allowance.seconds_until_token()


def share_out(tenants: Sequence[str], allowed: Mapping[str, int], most: int, /) -> dict[str, int]:
    """Share a number of jobs out: equally, as far as each tenant may start some.

    Args:
        tenants: The tenants, those whose turn it is first.
        allowed: The maximum for each of them.
        most: The number to share out.
    """
    shares: dict[str, int] = {}
    left = most
    waiting = [name for name in tenants if allowed[name] > 0]
    while waiting and left > 0:
        part = max(1, left // len(waiting))
        for name in waiting:
            given = min(part, allowed[name] - shares.get(name, 0), left)
            shares[name] = shares.get(name, 0) + given
            left -= given
        waiting = [name for name in waiting if shares.get(name, 0) < allowed[name]]
    return {name: share for name, share in shares.items() if share}


def _count_leased(session: Session, kind: str) -> dict[str, int]:
    """Count through the index over leases, of which there are few."""
    is_leased = (job.c.state == sql_int(LEASED), job.c.kind == kind, job.c.tenant.is_not(None))
    query = select(job.c.tenant, func.count()).where(*is_leased).group_by(job.c.tenant)
    return {name: count for name, count in session.core.execute(query) if name is not None}


def _adopt_first_jobs(session: Session, kind: str, most: int) -> None:
    """Give a tenant to jobs without one among the first of the queue, so that they get turns."""
    is_due = (job.c.state == sql_int(READY), job.c.kind == kind, job.c.due_at <= now_on(session))
    due = select(job.c.id, job.c.tenant).where(*is_due).order_by(job.c.due_at, job.c.id).limit(most)
    # By equality: a range of priorities would read all jobs that are not due yet.
    fronts = (due.where(job.c.priority == sql_int(each)).subquery() for each in PRIORITIES)
    front = union_all(*(select(each.c.id, each.c.tenant) for each in fronts)).subquery()
    ids = session.core.execute(select(front.c.id).where(front.c.tenant.is_(None))).scalars().all()
    if ids:
        is_ready = (job.c.id.in_(ids), job.c.state == sql_int(READY))
        session.core.execute(update(job).where(*is_ready).values(tenant=NO_TENANT))


def delete_old(session: Session, /) -> None:
    """Delete tokens of tenants that have started no job for long."""
    before = now_on(session) - KEEP_TOKENS
    with session.transaction("beat"):
        session.core.execute(delete(tenant_table).where(tenant_table.c.filled_at < before))


MAX_QUEUED = 5_000
"""Queued jobs of a job type that are counted. If there are more, a sample is."""
MAX_SAMPLED = 1_000
"""Queued jobs of the sample: those that are due first."""


@dataclass(frozen=True, slots=True)
class TenantCount:
    """The jobs of one tenant. Immutable."""

    tenant: str
    queued: int
    running: int


class TenantCounts(NamedTuple):
    """The tenants of a job type, those with the most queued jobs first."""

    tenants: list[TenantCount]
    is_cut: bool
    """Whether only the first `MAX_SAMPLED` queued jobs were counted, because there are more than
    `MAX_QUEUED`."""


def tenant_counts(connection: Connection, kind: str, /, *, limit: int) -> TenantCounts:
    """Count the queued and running jobs of each tenant of a job type."""
    is_ready = (job.c.state == sql_int(READY), job.c.kind == kind)
    ready = select(job.c.tenant).where(*is_ready)
    # The index of tenants has no jobs without one, and is read without the jobs.
    by_tenant = ready.where(job.c.tenant.is_not(None)).order_by(job.c.priority, job.c.tenant)
    counts = _count(connection, kind, by_tenant, MAX_QUEUED)
    is_cut = sum(each.queued for each in counts) >= MAX_QUEUED
    if is_cut:
        by_due = ready.order_by(job.c.priority, job.c.due_at, job.c.id)
        counts = _count(connection, kind, by_due, MAX_SAMPLED)
    return TenantCounts(counts[:limit], is_cut)


def _count(
    connection: Connection, kind: str, queued_jobs: Select[tuple[str | None]], most: int
) -> list[TenantCount]:
    ready = queued_jobs.limit(sql_int(most)).subquery()
    # The condition of the index, and then the state.
    is_held = (job.c.kind == kind, SEQUENCED, job.c.state == sql_int(HELD))
    held = select(job.c.tenant).where(*is_held).limit(sql_int(most)).subquery()
    is_leased = (job.c.state == sql_int(LEASED), job.c.kind == kind)
    leased = select(job.c.tenant).where(*is_leased).subquery()
    counted, not_counted = sql_int(1), sql_int(0)
    rows = union_all(
        select(ready.c.tenant, counted.label("queued"), not_counted.label("running")),
        select(held.c.tenant, counted, not_counted),
        select(leased.c.tenant, not_counted, counted),
    ).subquery()
    queued, running = func.sum(rows.c.queued), func.sum(rows.c.running)
    query = (
        select(rows.c.tenant, queued, running)
        .where(rows.c.tenant.is_not(None))
        .group_by(rows.c.tenant)
        .order_by(queued.desc(), running.desc(), rows.c.tenant)
    )
    return [TenantCount(name, int(q), int(r)) for name, q, r in connection.execute(query)]
