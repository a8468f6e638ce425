"""Shared by the tests of partitions: a dataset, its roles, and invariants."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any

from sqlalchemy import func, select

from redrive.backoff import fixed
from redrive.ledger import Ledger
from redrive.ledger import audit as audit_of
from redrive.ledger.db.partition_tables import partition, run, verdict, work
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.control.verdicts import VerdictWriter
from redrive.partitions.key import Partition
from redrive.partitions.model import PartitionFilter, PartitionLease, PartitionRun, PartitionView, Release, Verdict, VerdictResult
from redrive.partitions.queries import PartitionQueries
from redrive.partitions.retry_schedule import DatasetLimits, Policy
from tests.conformance.ledger.world import pass_time

DAY = date(2026, 3, 1)
AUDIT: Any = {"actor": "ann", "because": "a test"}


class World:
    """One dataset, crm/orders. Its roles can be created several times, as in several processes."""

    def __init__(self, ledger: Ledger, **options: Any) -> None:
        self.ledger = ledger
        policy = options.pop("policy", Policy(max_attempts=3, backoff=fixed(60)))
        self.limits = DatasetLimits("crm", "orders", policy, concurrency=options.pop("concurrency", 10_000), **options)
        self.queries = PartitionQueries(ledger)
        self.verdict_writer = VerdictWriter(ledger, [self.limits])
        self.control = self.plane()

    def plane(self, seed: int = 1) -> ControlPlane:
        return ControlPlane(self.ledger, [self.limits], draw=random.Random(seed).random)

    # ---- operations ----

    def key(self, customer: str = "acme", on: date = DAY) -> Partition:
        return Partition("crm", customer, "orders", on)

    def grid(self, customers: int | Iterable[str] = 1, days: int = 1, **options: Any) -> Grid:
        names = [f"c{number}" for number in range(customers)] if isinstance(customers, int) else list(customers)
        return Grid.of("crm", "orders", names, DAY, DAY + timedelta(days=days - 1), **options)

    def backfill(self, customers: int | Iterable[str] = 1, days: int = 1, **options: Any) -> int:
        return self.control.backfill(self.grid(customers, days), **AUDIT | options).id

    def claim(self, most: int = 1000, worker: str = "w1", **options: Any) -> list[PartitionLease]:
        return self.control.claim(most, worker=worker, **options)

    def lease_one(self, customer: str = "acme") -> PartitionLease:
        """Create a partition and lease it."""
        self.backfill([customer])
        (lease,) = self.claim()
        return lease

    def accept(self, *leases: PartitionLease, rows: int = 5) -> list[VerdictResult]:
        return self.verdict_writer.apply(
            [Verdict(lease.run_id, "accepted", record_count=rows, manifest=f"sha-{lease.run_id}") for lease in leases]
        )

    def reject(
        self, *leases: PartitionLease, reason: str = "row_count", manifest: bool = True, **more: Any
    ) -> list[VerdictResult]:
        digest = "sha" if manifest else None
        return self.verdict_writer.apply(
            [Verdict(lease.run_id, "rejected", reason=reason, message="too few", manifest=digest, **more) for lease in leases]
        )

    def give_back(self, lease: PartitionLease, cause: Any, **more: Any) -> int:
        return self.control.release_uncharged([Release(lease, cause, **more)])

    def retry(self, *keys: Partition, act: Any = "retry", clear_terminal: bool = False, **order: Any) -> int:
        picked = self.queries.freeze(act, PartitionFilter(keys=keys), clear_terminal=clear_terminal)
        sweep = self.control.begin_requeue(picked, clear_terminal=clear_terminal, **AUDIT | order).id
        self.control.maintain()
        return sweep

    def pass_time(self, seconds: float) -> None:
        pass_time(self.ledger, seconds)

    # ---- queries ----

    def facts(self, key: Partition | None = None) -> PartitionView:
        found = self.queries.get(key or self.key())
        assert found is not None
        return found

    def history(self, key: Partition | None = None) -> list[PartitionRun]:
        return self.queries.history(key or self.key())

    def states(self, key: Partition | None = None) -> list[str]:
        """Return its runs, oldest first."""
        return [one.state for one in reversed(self.history(key))]

    def audited(self) -> Sequence[str]:
        with self.ledger.connections.read.use() as session:
            return [entry.action for entry in audit_of.entries(session.core, limit=10_000)]

    def wrong(self) -> list[str]:
        """Return the violated invariants (research §9: 1, 3, 4, 11)."""
        with self.ledger.connections.read.use() as session:
            ask = session.core.execute
            said = []
            accepted = (
                select(run.c.run_id).join(verdict, verdict.c.run_id == run.c.run_id).where(verdict.c.decision == "accepted")
            )
            lost = select(func.count()).where(
                partition.c.current_run_id.is_not(None), partition.c.current_run_id.not_in(accepted)
            )
            if many := ask(lost).scalar_one():
                said.append(f"{many} current_run_id without an accepted verdict")
            runs = select(run.c.partition_id, func.count().label("n")).group_by(run.c.partition_id).subquery()
            off = select(func.count()).select_from(partition.outerjoin(runs, runs.c.partition_id == partition.c.id))
            if many := ask(off.where(func.coalesce(runs.c.n, 0) != partition.c.dispatch_count)).scalar_one():
                said.append(f"{many} dispatch_count that are not their runs")
            judged = select(run.c.partition_id, func.count().label("n")).join(verdict, verdict.c.run_id == run.c.run_id)
            judged_ = judged.group_by(run.c.partition_id).subquery()
            off = select(func.count()).select_from(partition.outerjoin(judged_, judged_.c.partition_id == partition.c.id))
            if many := ask(off.where(func.coalesce(judged_.c.n, 0) != partition.c.attempt_count)).scalar_one():
                said.append(f"{many} attempt_count that are not their verdicts")
            leased = select(func.count()).where(run.c.state == "leased")
            held = select(func.count()).where(work.c.lease_until.is_not(None))
            if ask(leased).scalar_one() != ask(held).scalar_one():
                said.append("runs that are leased are not the leases")
            fenced = select(func.count()).select_from(work.join(partition, partition.c.id == work.c.partition_id))
            if many := ask(
                fenced.where(work.c.attempt_no.is_not(None), work.c.attempt_no != partition.c.dispatch_count)
            ).scalar_one():
                said.append(f"{many} leases without the newest fence")
            if (broken := audit_of.verify(session.core).broken) is not None:
                said.append(f"the audit is broken at {broken}")
            return said
