"""Operator: what a person, or a program with a name, may do to a ledger.

The command line and the console show what an operator does, and do nothing to a ledger themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core.lazy import deferred
from ..errors import Drift
from ..ledger.audit import Actor
from .context import MAX_REPLAYS, OperatorContext, check_actor, check_reason
from .deprecated import add_deprecated_call, deprecated_method
from .sign_in.rights import Rights
from .sweeps import PARTITIONED, Applied, SweepOptions

if TYPE_CHECKING:
    from ..app import App
    from ..ledger.ledger import Ledger
    from ..ledger.sweep import Sweep
    from . import ledger
    from .audit import AuditOperations
    from .batches import BatchOperations
    from .controls.limits import LimitOperations
    from .controls.pauses import PauseOperations
    from .controls.schedules import ScheduleOperations
    from .dead_letters.operations import DeadLetterOperations
    from .events import EventOperations
    from .health.doctor import HealthOperations
    from .jobs import JobOperations
    from .keys import KeyOperations
    from .ledger import LedgerStatus
    from .overview.operations import OverviewOperations
    from .partitions.backfill import BackfillOperations
    from .partitions.operations import PartitionOperations, SourceOperations
    from .plans.plan import Plan
    from .retries import retry_stacks
    from .retries.retry_stacks import Stack
    from .sign_in.read_audit import ReadAudit
    from .sign_in.sessions import SessionOperations
    from .sign_in.tokens import TokenOperations
    from .sweeps import SweepOperations
    from .user_data import UserDataOperations
    from .workers import WorkerOperations
else:  # few commands need them
    ledger, retry_stacks = deferred(__package__, "ledger", "retries.retry_stacks")


class _Part:
    """A part of an operator, imported and made at its first use. A command needs one or two."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._class = module, name

    def __set_name__(self, _owner: type, name: str) -> None:
        self._attribute = name

    def __get__(self, operator: Operator | None, _owner: type) -> Any:
        if operator is None:
            return self
        part = getattr(import_module(self._module, __package__), self._class)
        add_deprecated_call(part, self._attribute)
        return operator.__dict__.setdefault(self._attribute, part(operator._context))


def _part(module: str, name: str) -> Any:
    return _Part(module, name)


class Operator:
    """All operations of an operator on a ledger, in parts. Threads may share one.

    Changes to many dead letters or partitions take two steps: make a `Plan`, then `apply` it with a
    reason. A part is imported at its first use.
    """

    dead_letters: DeadLetterOperations = _part(".dead_letters.operations", "DeadLetterOperations")
    """Find, replay, discard, edit and export dead letters."""
    jobs: JobOperations = _part(".jobs", "JobOperations")
    """Find jobs and show their payloads."""
    events: EventOperations = _part(".events", "EventOperations")
    """Find and replay received events."""
    keys: KeyOperations = _part(".keys", "KeyOperations")
    """Find and release idempotency records."""
    batches: BatchOperations = _part(".batches", "BatchOperations")
    """Find and reopen items of batches that were given up."""
    partitions: PartitionOperations = _part(".partitions.operations", "PartitionOperations")
    """Find, retry, mark and roll back partitions."""
    sources: SourceOperations = _part(".partitions.operations", "SourceOperations")
    """Pause and unpause the sources of datasets."""
    backfills: BackfillOperations = _part(".partitions.backfill", "BackfillOperations")
    """Plan backfills, and follow every sweep over partitions."""
    sweeps: SweepOperations = _part(".sweeps", "SweepOperations")
    """Find, pause, resume and cancel bulk operations."""
    audit: AuditOperations = _part(".audit", "AuditOperations")
    """Read and verify the audit log."""
    user_data: UserDataOperations = _part(".user_data", "UserDataOperations")
    """Erase the data of one user."""
    workers: WorkerOperations = _part(".workers", "WorkerOperations")
    """Show the workers."""
    pauses: PauseOperations = _part(".controls.pauses", "PauseOperations")
    """Pause and resume the app, job types, sources and schedules."""
    limits: LimitOperations = _part(".controls.limits", "LimitOperations")
    """Set and reset limits of job types at run time."""
    schedules: ScheduleOperations = _part(".controls.schedules", "ScheduleOperations")
    """Fire schedules now."""
    tokens: TokenOperations = _part(".sign_in.tokens", "TokenOperations")
    """Create and revoke named tokens of the console."""
    sessions: SessionOperations = _part(".sign_in.sessions", "SessionOperations")
    """Show and revoke sessions of the console."""
    overview: OverviewOperations = _part(".overview.operations", "OverviewOperations")
    """Show problems, failures, schedules and log records."""
    health: HealthOperations = _part(".health.doctor", "HealthOperations")
    """Check and repair the ledger."""

    def __init__(
        self,
        app: App | Ledger,
        /,
        *,
        actor: str,
        via: str | None = None,
        rights: Rights | None = None,
        reads: ReadAudit | None = None,
    ) -> None:
        """Act on a ledger under a name.

        Args:
            app: The app, or an open ledger.
            actor: Who acts, for the audit log.
            via: How the actor was authenticated, for the audit log.
            rights: Acts and job types that are allowed. None: all.
            reads: Records reads of payloads in the audit log. None: they are not recorded.
        """
        check = None if rights is None else rights.check_action
        self.actor: str = Actor(check_actor(actor), via=via, check=check)
        self._context = OperatorContext(app, self.actor, rights, reads)

    # --- The ledger

    @property
    def url(self) -> str:
        """Address of the ledger, without its password."""
        return self._context.ledger.url

    def now(self) -> datetime:
        """Return the time of the ledger's clock.

        Returns:
            The time, in UTC.
        """
        return self._context.ledger.now()

    def status(self) -> LedgerStatus:
        """Return schema version, size and counts of the ledger.

        Returns:
            The status.
        """
        return ledger.status(self._context.ledger)

    def retry_stacks(self) -> list[Stack]:
        """Return the retry layers of the app, by job type. Empty for a bare ledger.

        Returns:
            The stacks.
        """
        return retry_stacks.stacks(self._context.app)

    # --- Plans, which are about dead letters or partitions

    def begin(
        self,
        plan: Plan,
        /,
        *,
        because: str,
        rate: float | None = None,
        canary: int = 0,
        max_replays: int | None = MAX_REPLAYS,
        seen: str | None = None,
        halt_on: float | None = None,
        without_raw: bool = False,
        accept_drift: bool = False,
        fresh: bool = False,
    ) -> Sweep:
        """Store a plan as a bulk operation (a sweep) that any worker carries out.

        Args:
            plan: The plan.
            because: Why, for the audit log.
            rate: Maximum number of items in a second.
            canary: Replay this many first. Continue only if all of them succeed.
            max_replays: Skip dead letters that were replayed this often. None: no limit.
            seen: Digest of the plan that was reviewed. Another plan raises `Drift`.
            halt_on: For partitions: stop if more than this part of the verdicts are rejections.
            without_raw: For partitions: also retry those without raw data.
            accept_drift: For partitions: skip those that have changed since the plan, instead of an
                error.
            fresh: For replays: repeat finished steps, instead of reusing their results.

        Returns:
            The sweep.

        Raises:
            ValueError: `because` is empty.
            Drift: The plan is not the one that was reviewed.
        """
        options = SweepOptions(rate, canary, max_replays, halt_on, without_raw, accept_drift, fresh)
        return self._begin(plan, because, options, seen)

    def apply(
        self,
        plan: Plan,
        /,
        *,
        because: str,
        rate: float | None = None,
        canary: int = 0,
        max_replays: int | None = MAX_REPLAYS,
        halt_on: float | None = None,
        without_raw: bool = False,
        accept_drift: bool = False,
        fresh: bool = False,
    ) -> Applied:
        """Carry out a plan here and now. If this process dies, workers continue it.

        With a canary it waits until the canary's jobs have ended, which needs a worker. Partitions
        are queued, and workers extract them. A backfill is only stored.

        Args:
            plan: The plan.
            because: Why, for the audit log.
            rate: Maximum number of items in a second.
            canary: Replay this many first. Continue only if all of them succeed.
            max_replays: Skip dead letters that were replayed this often. None: no limit.
            halt_on: For partitions: stop if more than this part of the verdicts are rejections.
            without_raw: For partitions: also retry those without raw data.
            accept_drift: For partitions: skip those that have changed since the plan, instead of an
                error.
            fresh: For replays: repeat finished steps, instead of reusing their results.

        Returns:
            What was done and what was skipped.
        """
        options = SweepOptions(rate, canary, max_replays, halt_on, without_raw, accept_drift, fresh)
        sweep = self._begin(plan, because, options)
        for step in self.carry_out(sweep.id):
            sweep = step.sweep
        return self.total(sweep)

    def total(self, sweep: Sweep, /) -> Applied:
        """Return everything that a sweep has done, here and by workers.

        Args:
            sweep: The sweep.

        Returns:
            The total. For partitions it has the sweep alone.
        """
        return Applied({}, {}, sweep) if sweep.act in PARTITIONED else self.sweeps.total(sweep)

    def carry_out(self, sweep_id: int, /) -> Iterator[Applied]:
        """Carry out the rest of a sweep here, step by step, beside any worker.

        Args:
            sweep_id: Id of the sweep.

        Returns:
            An iterator of the steps.
        """
        sweep = self._context.ledger.sweeps.get(sweep_id)
        is_partitioned = sweep is not None and sweep.act in PARTITIONED
        return (self.backfills if is_partitioned else self.sweeps).carry_out(sweep_id)

    def _begin(
        self, plan: Plan, because: str, options: SweepOptions, seen: str | None = None
    ) -> Sweep:
        check_reason(because)
        if seen is not None and seen != plan.digest:
            changed = f"the plan has changed and now covers {plan.count:,}"
            raise Drift(f"{changed}; check the new plan; nothing was changed")
        self._context.require_plan(plan)
        part = self.sweeps if plan.partitions is None else self.backfills
        return part.begin(plan, because=because, options=options)

    if not TYPE_CHECKING:  # Type checkers report old names, which work at run time.

        def __getattr__(self, name: str) -> Any:
            return deprecated_method(self, name)
