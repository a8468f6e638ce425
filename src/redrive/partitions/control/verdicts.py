"""VerdictWriter: applies verdicts. Only it moves `current_run_id`, the run that readers get."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from ...errors import NotAllowed
from ...ledger import audit
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import verdict as verdict_table
from ...ledger.db.session import Session
from ...ledger.db.tables import sweep
from ...ledger.ledger import Ledger
from ...ledger.validation import storable_text
from ..key import Partition
from ..model import (
    Decision,
    Lane,
    Marker,
    PartitionRun,
    PartitionView,
    RunState,
    Status,
    Verdict,
    VerdictResult,
)
from ..retry_schedule import DatasetLimits, after_rejection, policy_of
from ..store.changes import Changes
from ..store.queries import load_row, load_run, load_runs, load_view
from ..store.rows import (
    POLICY,
    Markers,
    PartitionRow,
    PartitionWork,
    SourceRow,
    lock_partitions,
    lock_sources,
    lock_with_work,
)
from ..store.statements import InListStatement
from .limits import attempt_budget, stored_age_limit
from .source_health import is_outage_echo, paused_sources_of, unpause_recovered

_WITH_VERDICT = InListStatement(verdict_table.c.run_id, select(verdict_table.c.run_id).where)
_ended_sweeps = select(sweep.c.id).where(sweep.c.state.in_(("cancelled", "done")))
_ENDED_SWEEPS = InListStatement(sweep.c.id, _ended_sweeps.where)
MAX_ERROR_CHARS = 2000
"""Length of the message that a partition keeps. The verdict keeps all of it."""


class VerdictWriter:
    """Applies the verdicts of a validator. Threads may share it. Its methods block."""

    def __init__(
        self,
        ledger: Ledger,
        datasets: Iterable[DatasetLimits],
        /,
        *,
        lock_seconds: float | None = None,
    ) -> None:
        """Prepare.

        Args:
            datasets: The datasets, for when a rejected partition is retried.
            lock_seconds: How long a transaction waits for a lock on Postgres. None: as long as a
                statement may take.
        """
        self._ledger = ledger
        self._datasets = {dataset.dataset: dataset for dataset in datasets}
        self._lock_seconds = lock_seconds

    def apply(self, verdicts: Sequence[Verdict], /) -> list[VerdictResult]:
        """Apply verdicts, all or none. A verdict on a run that has one changes nothing."""
        if not verdicts:
            return []
        with (
            self._ledger.connections.write.use() as session,
            session.transaction("partition.judge", lock_seconds=self._lock_seconds),
        ):
            return _apply(session, verdicts, self._datasets)

    def rollback(
        self, partition: Partition, run_id: str, /, *, actor: str, because: str
    ) -> PartitionView:
        """Make an earlier accepted run the current one. The caller has checked its raw data.

        Raises:
            NotAllowed: The run is not an accepted run of this partition, or is current.
        """
        audit.check_actor(actor, because)
        with (
            self._ledger.connections.write.use() as session,
            session.transaction("partition.rollback"),
        ):
            return _roll_back(session, partition, run_id, actor, because)


def outcome_of(
    row: PartitionRow, decision: Decision, of: PartitionRun, /, *, is_fenced: bool
) -> tuple[PartitionRow, RunState]:
    """Return a partition after a verdict, and the state of the run. Pure.

    Every verdict counts as an attempt. A late one changes nothing else.

    Args:
        is_fenced: The run still has the lease of the partition.
    """
    row = row._replace(attempt_count=row.attempt_count + 1)
    if not is_fenced or of.attempt_no <= row.current_attempt_no:
        return row, "late"
    if decision == "accepted":
        accepted = row._replace(
            status="success",
            current_run_id=of.run_id,
            current_raw_id=of.raw_run_id,
            current_attempt_no=of.attempt_no,
            last_verdict="accepted",
        )
        return accepted, "accepted"
    status: Status = "failed" if row.current_run_id is None else "success"
    return row._replace(status=status, last_verdict="rejected"), "rejected"


@dataclass(frozen=True)
class _Batch:
    """What a batch of verdicts is about, as it was read, and its changes."""

    connection: Connection
    runs: Mapping[str, PartitionRun]
    work: Mapping[int, PartitionWork]
    markers: Mapping[int, Markers]
    ended_sweeps: Collection[int]
    datasets: Mapping[tuple[str, str], DatasetLimits]
    changes: Changes
    now: datetime


def _apply(
    session: Session,
    verdicts: Sequence[Verdict],
    datasets: Mapping[tuple[str, str], DatasetLimits],
) -> list[VerdictResult]:
    connection = session.core
    now = now_on(session)
    runs = {run.run_id: run for run in load_runs(connection, [each.run_id for each in verdicts])}
    ids = sorted({run.partition_id for run in runs.values()})
    # Sources are locked before partitions, as everywhere. Data from a paused source unpauses it.
    paused = paused_sources_of(connection, ids)
    sources = lock_sources(session, paused, now) if paused else {}
    rows, work, markers = lock_with_work(connection, ids)
    changes = Changes(rows)
    sweep_ids = {each.sweep_id for each in work.values()} - {0}
    ended_sweeps = {row[0] for row in _ENDED_SWEEPS.rows(connection, sweep_ids)}
    batch = _Batch(connection, runs, work, markers, ended_sweeps, datasets, changes, now)
    known = {row[0] for row in _WITH_VERDICT.rows(connection, list(runs))}
    results: list[VerdictResult] = []
    written: list[dict[str, Any]] = []
    for each in verdicts:
        result = _without_effect(batch, each, known, sources)
        if result is None:
            known.add(each.run_id)
            result = _apply_one(batch, each)
            written.append(_verdict_row(each, now))
        results.append(result)
    ended = [
        {"run_id": result.run_id, "state": result.outcome, "ended_at": now, "note": None}
        for result in results
        if result.outcome in ("accepted", "rejected", "late")
    ]
    changes.write(session, ended=ended, verdicts=written)
    if sources:
        _unpause_sources(session, batch, verdicts, results, sources)
    return results


def _unpause_sources(
    session: Session,
    batch: _Batch,
    verdicts: Sequence[Verdict],
    results: Sequence[VerdictResult],
    sources: dict[str, SourceRow],
) -> None:
    """Unpause each paused source that has returned data."""
    for verdict, result in zip(verdicts, results, strict=True):
        if result.outcome not in ("accepted", "rejected"):
            continue
        run = batch.runs[verdict.run_id]
        row = batch.changes.row(run.partition_id)
        source = sources.get(row.source)
        policy = policy_of(batch.datasets, row.dataset)
        if source and unpause_recovered(session, source, result, verdict, run, policy, batch.now):
            del sources[row.source]


def _without_effect(
    batch: _Batch, verdict: Verdict, known: Collection[str], sources: Mapping[str, SourceRow]
) -> VerdictResult | None:
    """Return the result of a verdict that must not be applied."""
    run = batch.runs.get(verdict.run_id)
    if run is None:
        return VerdictResult(verdict.run_id, "unknown")
    row = batch.changes.row(run.partition_id)
    standing = (row.partition, row.attempt_count, row.status)
    if verdict.run_id in known:
        return VerdictResult(verdict.run_id, "repeated", *standing)
    if is_outage_echo(sources.get(row.source), verdict, run):
        return VerdictResult(verdict.run_id, "spared", *standing)
    return None


def _apply_one(batch: _Batch, verdict: Verdict) -> VerdictResult:
    changes, run = batch.changes, batch.runs[verdict.run_id]
    row = changes.row(run.partition_id)
    work = changes.work.get(row.id, batch.work.get(row.id))
    is_fenced = (
        work is not None
        and work.is_leased
        and work.attempt_no == run.attempt_no
        and row.id not in changes.work_deleted
    )
    row, state = outcome_of(row, verdict.decision, run, is_fenced=is_fenced)
    row = row._replace(updated_at=batch.now)
    standing = (row.partition, row.attempt_count, row.status)
    if state == "late":
        changes.rows[row.id] = row
        return VerdictResult(verdict.run_id, "late", *standing)
    assert work is not None
    changes.sweep_counts[work.sweep_id, state] += 1
    row = row._replace(verdict_at=batch.now)
    if state == "rejected":
        reason = storable_text(verdict.reason) or "rejected"
        row = row._replace(reason=reason, error=_shorten(storable_text(verdict.message)))
        return _reject(batch, row, work, verdict)
    row = row._replace(record_count=verdict.record_count, reason=None, error=None)
    changes.rows[row.id] = row.with_display_status(is_terminal=False)
    changes.work_deleted.add(row.id)
    changes.sweep_counts[work.sweep_id, "ok"] += 1
    terminal = batch.markers.get(row.id, {}).get("terminal")
    if terminal is not None and terminal.cause != "manual":
        changes.delete_marker(row.id, "terminal")
    return VerdictResult(verdict.run_id, "accepted", *standing)


def _reject(
    batch: _Batch, row: PartitionRow, work: PartitionWork, verdict: Verdict
) -> VerdictResult:
    changes, now = batch.changes, batch.now
    markers = batch.markers.get(row.id, {})
    policy = policy_of(batch.datasets, row.dataset)
    budget = attempt_budget(policy, row.attempt_count, markers.get("grant"))
    retry_before = partial(
        after_rejection, policy, budget, work.seed, now, after=verdict.after, final=verdict.final
    )
    retry = retry_before(None)
    if retry.due is not None:
        max_age_at = stored_age_limit(batch.connection, policy, row, work, retry.due)
        retry = retry if max_age_at is None else retry_before(max_age_at)
    # A readable partition does not give up: readers keep its current run.
    terminal = retry.terminal if row.current_run_id is None else None
    if terminal is not None and "terminal" not in markers:
        changes.set_marker(
            row.id, Marker("terminal", terminal, POLICY, retry.strategy, now, row.attempt_count)
        )
    is_terminal = "terminal" in markers or terminal is not None
    changes.rows[row.id] = row.with_display_status(is_terminal=is_terminal)
    is_refused_revalidation = work.kind == "revalidate" and row.current_run_id is not None
    is_stopped = "paused" in markers or "terminal" in markers or is_refused_revalidation
    due = None if is_stopped else retry.due
    if due is None:
        changes.end_work(work)
    else:
        # A fresh partition, or one whose sweep has ended, belongs to the policy from now on.
        leaves_sweep = work.lane == Lane.FRESH or work.sweep_id in batch.ended_sweeps
        if work.sweep_id and leaves_sweep:
            changes.sweep_counts[work.sweep_id, "failed"] += 1
        changes.work[row.id] = work.requeue(due, retry.strategy)._replace(
            lane=int(Lane.RETRY) if leaves_sweep else work.lane,
            sweep_id=0 if leaves_sweep else work.sweep_id,
            queued_at=now,
            lost=0,
            raw_run_id=None,
            kind="retry" if row.current_run_id is None else "reprocess",
        )
    standing = (row.partition, row.attempt_count, row.status)
    return VerdictResult(verdict.run_id, "rejected", *standing, next_at=due, terminal=terminal)


def _roll_back(
    session: Session, key: Partition, run_id: str, actor: str, because: str
) -> PartitionView:
    connection = session.core
    now = now_on(session)
    row = load_row(connection, key)
    if row is None:
        raise NotAllowed(f"nothing is stored of {key}: there is no run to go back to")
    row = lock_partitions(connection, [row.id])[row.id]
    target = load_run(connection, run_id)
    if target is None or target.partition_id != row.id:
        raise NotAllowed(f"{key}: no run {run_id}; `redrive state history {key}` lists its runs")
    if target.verdict is None or target.verdict.decision != "accepted":
        raise NotAllowed(
            f"run {run_id} of {key} is {target.state}: one can go back to an accepted run only"
        )
    if row.current_run_id == run_id:
        raise NotAllowed(f"run {run_id} of {key} is already the current run")
    changes = Changes({row.id: row})
    changes.rows[row.id] = row._replace(
        status="success",
        current_run_id=run_id,
        current_raw_id=target.raw_run_id,
        current_attempt_no=target.attempt_no,
        record_count=target.verdict.record_count,
        last_verdict="accepted",
        reason=None,
        error=None,
        updated_at=now,
    ).with_display_status(is_terminal=False)
    changes.write(session)
    audit.write(
        session,
        actor=actor,
        action="partition.rollback",
        because=because,
        what={"partition": str(key), "from": row.current_run_id, "to": run_id},
    )
    view = load_view(connection, key)
    assert view is not None
    return view


def _verdict_row(verdict: Verdict, now: datetime) -> dict[str, Any]:
    return {
        "run_id": verdict.run_id,
        "decision": verdict.decision,
        "validator": verdict.validator,
        "version": verdict.version,
        "checks": json.dumps([dict(check) for check in verdict.checks], default=str),
        "record_count": verdict.record_count,
        "reason": storable_text(verdict.reason),
        "message": storable_text(verdict.message),
        "manifest": verdict.manifest,
        "at": now,
    }


def _shorten(text: str | None) -> str | None:
    if text is None or len(text) <= MAX_ERROR_CHARS:
        return text
    return text[:MAX_ERROR_CHARS] + " …"
