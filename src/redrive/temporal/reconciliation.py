"""Reconciliation: dead letters of activities whose end only the server knows.

A worker makes the dead letter of an activity that it gives up. Deadlines pass, and workers die,
without one: then the server alone knows of the failure. It also forwards cancellations of jobs in
the ledger to their activities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio.client import ActivityExecution, Client
from temporalio.exceptions import CancelledError

from ..journal.bus import emit
from ..ledger import mirrors
from ..ledger.ledger import Ledger
from .activity import ActivityRef
from .client import TemporalCommands, arguments_of, envelope_of
from .completion import failed_run
from .connection import NOTHING_CHANGED
from .failure import FailureDetails

EVERY_SECONDS = 5.0
OVERLAP = timedelta(minutes=5)
"""Activities that ended this long before the last pass are read again: the server's index lags."""
PAGE = 200
CANCEL_LOOKBACK = timedelta(days=1)
STATES = {
    "Running": "open",
    "Completed": "done",
    "Canceled": "cancelled",
    "Terminated": "cancelled",
}
"""States of activities as the overview shows them. All others have failed."""


class ReconciliationTask:
    """A background task that records failed activities as dead letters.

    Any number of workers run it: each run of an activity is recorded once. Belongs to the thread of
    the task.

    Args:
        commands: Reads and cancels activities.
        ledger: Gets the dead letters.
        kinds: The commands of the worker.
        report: Gets the state of the server, for the overview.
    """

    name = "temporal.reconcile"
    every = EVERY_SECONDS

    def __init__(
        self,
        commands: TemporalCommands,
        ledger: Ledger,
        kinds: Sequence[str],
        report: Callable[[Mapping[str, Any]], None],
        /,
    ) -> None:
        self._commands = commands
        self._ledger = ledger
        self._kinds = frozenset(kinds)
        self._report = report
        self._since: datetime | None = None
        self._settled: set[str] = set()
        """Runs that need nothing more."""
        self._cancelled_since: datetime | None = None
        self._forwarded: set[int] = set()
        """Cancelled jobs whose activities were asked to stop."""

    def do(self, now: datetime, /) -> None:
        """Record failures since the last pass, and forward cancellations."""
        self.forward_cancels(now)
        counts = self._commands.connection.call(self._count, NOTHING_CHANGED)
        engine = self._commands.connection.engine
        self._report(
            {
                "name": f"Temporal {engine.address}",
                "namespace": engine.namespace,
                "queue": engine.task_queue,
                "at": now.isoformat(),
                "counts": counts,
            }
        )
        failed = self._commands.connection.call(self._list_failed, NOTHING_CHANGED)
        for start in range(0, len(failed), PAGE):
            self._record(failed[start : start + PAGE])
        ends = [each.close_time for each in failed if each.close_time is not None]
        if ends:
            self._since = max([*ends, *([] if self._since is None else [self._since])])
        self._settled &= {each.activity_run_id or "" for each in failed}

    @property
    def _in_queues(self) -> str:
        engine = self._commands.connection.engine
        queues = ", ".join(f'"{engine.queue_of(each)}"' for each in ("thread", "async"))
        return f"TaskQueue IN ({queues})"

    async def _count(self, client: Client) -> dict[str, int]:
        """Count the activities that the server has, by state."""
        groups = (
            await client.count_activities(f"{self._in_queues} GROUP BY ExecutionStatus")
        ).groups
        counts: Counter[str] = Counter()
        for group in groups:
            counts[STATES.get(str(group.group_values[0]), "failed")] += group.count
        return dict(counts)

    async def _list_failed(self, client: Client) -> list[ActivityExecution]:
        query = f'{self._in_queues} AND ExecutionStatus IN ("Failed", "TimedOut")'
        if self._since is not None:
            since = (self._since - OVERLAP).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            query += f' AND CloseTime >= "{since}"'
        found = [each async for each in client.list_activities(query)]
        return [each for each in found if each.activity_type in self._kinds]

    def _record(self, failed: Sequence[ActivityExecution]) -> None:
        new = [each for each in failed if each.activity_run_id not in self._settled]
        queue = self._commands.connection.engine.task_queue
        keys = [
            (each.activity_type, each.activity_id.removeprefix(f"{queue}/{each.activity_type}/"))
            for each in new
        ]
        self._settled |= mirrors.recorded_runs(self._ledger.connections, keys) if keys else set()
        new = [each for each in new if each.activity_run_id not in self._settled]

        async def describe(client: Client) -> list[tuple[ActivityExecution, mirrors.FailedRun]]:
            runs = []
            for each in new:
                ref = ActivityRef(each.activity_id, each.activity_run_id or "")
                described = await self._commands.describe(client, ref, whole=True)
                envelope = None if described is None else await envelope_of(described)
                # A run for a job in the ledger is settled by that job.
                if described is None or envelope is None or envelope.ledger_job is not None:
                    self._settled.add(ref.run_id)
                    continue
                failure = await described.outcome_failure()
                if isinstance(failure, CancelledError):
                    self._settled.add(ref.run_id)
                    continue
                details = FailureDetails.of(failure)
                if not details.attempts:
                    details = details.with_attempts(described.attempt)
                arguments = await arguments_of(described)
                kind, ended = each.activity_type, each.close_time
                runs.append((each, failed_run(kind, arguments, envelope, ref, details, ended)))
            return runs

        for each, run in self._commands.connection.call(describe, NOTHING_CHANGED):
            try:
                mirrors.record_failed(self._ledger.connections, run, self._ledger.max_payload)
            except (TypeError, ValueError) as error:  # of another program; the others go on
                fields = {"error": str(error), "error_class": type(error).__name__}
                emit("chore_failed", {"operation": self.name, **fields})
            self._settled.add(each.activity_run_id or "")

    def forward_cancels(self, now: datetime, /) -> None:
        """Ask the activities of jobs to stop that were cancelled in the ledger."""
        since = self._cancelled_since or now - CANCEL_LOOKBACK
        rows = mirrors.cancelled_since(self._ledger.connections, sorted(self._kinds), since)
        for job_id, kind, key in rows:
            if job_id not in self._forwarded:
                ref = self._commands.latest(kind, key)
                self._commands.cancel_run_of(ref, job_id, "its job was cancelled in the ledger")
                self._forwarded.add(job_id)
        self._cancelled_since = now - OVERLAP
        self._forwarded &= {job_id for job_id, _, _ in rows}
