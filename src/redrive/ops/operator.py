"""Operator: what a person, or an automation with a name, may do to a ledger. The CLI and the console are skins over this."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..core.lazy import deferred
from ..errors import Drift
from .actor import checked
from .defaults import MAX_REPLAYS, QUIET
from .partitions.planning import Partitioning
from .record_keeping import RecordKeeping

if TYPE_CHECKING:
    from ..app import App
    from ..ledger.ledger import Ledger
    from ..ledger.model import DeadLetterStatus as LetterStatus
    from ..ledger.model import DisplayState
    from . import audit, events, jobs, ledger, sweep
    from .audit import Chain, Decision
    from .dead_letters import edit, export, reveal
    from .dead_letters import queries as dead
    from .dead_letters.queries import Group, Letter, LetterReport
    from .dead_letters.reveal import Of, Revealed
    from .events import EventReport, ReceivedEvent
    from .health import doctor
    from .health.finding import Health
    from .jobs import JobLine, JobReport
    from .ledger import Status
    from .overview import change_token as changes
    from .partitions import backfill
    from .plans import plan
    from .plans.plan import Plan
    from .retry_stacks import app as stacks
    from .retry_stacks.app import Stack
    from .sweep import Applied, Sweep, SweepReport
else:  # a command of the CLI needs one or two of them
    audit, backfill, dead, doctor, edit, events, export, jobs, ledger = deferred(
        __package__,
        "audit",
        "partitions.backfill",
        "dead_letters.queries",
        "health.doctor",
        "dead_letters.edit",
        "events",
        "dead_letters.export",
        "jobs",
        "ledger",
    )
    plan, reveal, stacks, sweep, changes = deferred(
        __package__, "plans.plan", "dead_letters.reveal", "retry_stacks.app", "sweep", "overview.change_token"
    )


class Operator(RecordKeeping, Partitioning):
    """All operations of an operator on a ledger, as the CLI and the console use them.

    Changes to many dead letters or partitions take two steps: make a `Plan`, then `apply` it with a
    reason. Threads may share one.
    """

    def __init__(self, app: App | Ledger, /, *, actor: str) -> None:
        """Act on a ledger under a name.

        Args:
            app: The app, or an open ledger.
            actor: Who acts, for the audit log.
        """
        self.actor = checked(actor)
        self._app = app

    # ---- dead letters ----

    def dead(
        self, *, kind: str | None = None, error: str | None = None, reason: str | None = None,
        status: LetterStatus | None = "pending", since: datetime | None = None, until: datetime | None = None,
        limit: int = 100, before: int | None = None,
    ) -> list[Letter]:  # fmt: skip
        """Return dead letters, newest first.

        Args:
            kind: Job type.
            error: Text in the error, or its signature.
            reason: Why the job died.
            status: `"pending"`, `"replaying"`, `"replayed"` or `"discarded"`. None: all.
            since: Not older than this.
            until: Older than this.
            limit: Maximum number.
            before: Only dead letters with a lower id.

        Returns:
            The dead letters.
        """
        some = dead.Selection(kind=kind, error=error, reason=reason, since=since, until=until, limit=limit)
        return dead.listed(self._ledger, some, status, before=before)

    def dead_groups(
        self, *, kind: str | None = None, error: str | None = None, reason: str | None = None,
        status: LetterStatus | None = "pending", since: datetime | None = None,
    ) -> list[Group]:  # fmt: skip
        """Return the newest 1,000 dead letters, grouped by job type and cause.

        Args:
            kind: Job type.
            error: Text in the error, or its signature.
            reason: Why the job died.
            status: `"pending"`, `"replaying"`, `"replayed"` or `"discarded"`. None: all.
            since: Not older than this.

        Returns:
            The groups, the largest first.
        """
        return dead.grouped(self._ledger, dead.Selection(kind=kind, error=error, reason=reason, since=since), status)

    def count_dead(
        self, *, kind: str | None = None, error: str | None = None, reason: str | None = None,
        status: LetterStatus | None = "pending", since: datetime | None = None, until: datetime | None = None,
        source: str | None = None,
    ) -> int:  # fmt: skip
        """Return the number of dead letters, counted up to 100,001.

        Args:
            kind: Job type.
            error: Text in the error, or its signature.
            reason: Why the job died.
            status: `"pending"`, `"replaying"`, `"replayed"` or `"discarded"`. None: all.
            since: Not older than this.
            until: Older than this.
            source: Source of the messages.

        Returns:
            The number.
        """
        some = dead.Selection(kind=kind, error=error, reason=reason, since=since, until=until, source=source)
        return dead.counted(self._ledger, some, status)

    def letter(self, letter_id: int, /) -> LetterReport | None:
        """Return everything that is known about a dead letter.

        Args:
            letter_id: Id of the dead letter.

        Returns:
            The report, or None.
        """
        return dead.shown(self._ledger, letter_id)

    def replay(
        self, *, ids: Collection[int | str] = (), kind: str | None = None, error: str | None = None, reason: str | None = None,
        since: datetime | None = None, until: datetime | None = None, source: str | None = None, limit: int | None = None,
        upto: int | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to replay dead letters. Nothing is changed or recorded before `apply`.

        Args:
            ids: Ids of dead letters.
            kind: Job type.
            error: Text in the error, or its signature.
            reason: Why the job died.
            since: Not older than this.
            until: Older than this.
            source: Source of the messages.
            limit: Maximum number.
            upto: Only dead letters up to this id.

        Returns:
            The plan.

        Raises:
            ValueError: No filter is passed.
        """
        chosen = dead.Selection(dead.numbers(ids), kind, reason, error, since, limit, source, upto, until)
        return plan.planned(self._ledger, "replay", chosen.require_filter())

    def discard(
        self, *, ids: Collection[int | str] = (), kind: str | None = None, error: str | None = None, reason: str | None = None,
        since: datetime | None = None, until: datetime | None = None, source: str | None = None, limit: int | None = None,
        upto: int | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to discard dead letters for good. Nothing is changed or recorded before `apply`.

        Args:
            ids: Ids of dead letters.
            kind: Job type.
            error: Text in the error, or its signature.
            reason: Why the job died.
            since: Not older than this.
            until: Older than this.
            source: Source of the messages.
            limit: Maximum number.
            upto: Only dead letters up to this id.

        Returns:
            The plan.

        Raises:
            ValueError: No filter is passed.
        """
        chosen = dead.Selection(dead.numbers(ids), kind, reason, error, since, limit, source, upto, until)
        return plan.planned(self._ledger, "discard", chosen.require_filter())

    def begin(
        self, what: Plan, /, *, because: str, rate: float | None = None, canary: int = 0, max_replays: int | None = MAX_REPLAYS,
        seen: str | None = None, halt_on: float | None = None, without_raw: bool = False, accept_drift: bool = False,
    ) -> Sweep:  # fmt: skip
        """Store a plan as a bulk operation (a sweep) that any worker carries out.

        Args:
            what: The plan.
            because: Why, for the audit log.
            rate: Maximum number of items in a second.
            canary: Replay this many first. Continue only if all of them succeed.
            max_replays: Skip dead letters that were replayed this often. None: no limit.
            seen: Digest of the plan that was reviewed. Another plan raises `Drift`.
            halt_on: For partitions: stop if more than this part of the verdicts are rejections.
            without_raw: For partitions: also retry those without raw data.
            accept_drift: For partitions: skip those that have changed since the plan, instead of an
                error.

        Returns:
            The sweep.

        Raises:
            ValueError: `because` is empty.
            Drift: The plan is not the one that was reviewed.
        """
        self._say(because)
        if seen is not None and seen != what.digest:
            raise Drift(f"the plan has changed and now covers {what.count:,}; check the new plan; nothing was changed")
        if what.partitions is not None:
            how = {"rate": rate, "canary": canary, "halt_on": halt_on, "without_raw": without_raw, "accept_drift": accept_drift}
            return self._begun(what, because=because, **how)
        return sweep.begun(
            self._ledger, what, actor=self.actor, because=because, rate=rate, canary=canary, max_replays=max_replays
        )

    def apply(
        self, what: Plan, /, *, because: str, rate: float | None = None, canary: int = 0, max_replays: int | None = MAX_REPLAYS,
        halt_on: float | None = None, without_raw: bool = False, accept_drift: bool = False,
    ) -> Applied:  # fmt: skip
        """Carry out a plan here and now. If this process dies, workers continue it.

        With a canary it waits until the canary's jobs have ended, which needs a worker. Partitions
        are queued, and workers extract them. A backfill is only stored.

        Args:
            what: The plan.
            because: Why, for the audit log.
            rate: Maximum number of items in a second.
            canary: Replay this many first. Continue only if all of them succeed.
            max_replays: Skip dead letters that were replayed this often. None: no limit.
            halt_on: For partitions: stop if more than this part of the verdicts are rejections.
            without_raw: For partitions: also retry those without raw data.
            accept_drift: For partitions: skip those that have changed since the plan, instead of an
                error.

        Returns:
            What was done and what was skipped.
        """
        begun = self.begin(
            what, because=because, rate=rate, canary=canary, max_replays=max_replays, halt_on=halt_on, without_raw=without_raw,
            accept_drift=accept_drift,
        )  # fmt: skip
        done: dict[int, int] = {}
        skipped: dict[int, str] = {}
        for step in self.carry_out(begun.id):
            done |= step.done
            skipped |= step.skipped
            begun = step.sweep
        return self.applied(sweep.Applied(done, skipped, begun))

    def applied(self, here: Applied, /) -> Applied:
        """Return the total of a sweep, including steps that workers did at the same time.

        Args:
            here: The steps that were done here.

        Returns:
            The total.
        """
        if here.sweep.act in backfill.PARTITIONED:
            return here
        return sweep.Applied(*sweep.acted(self._ledger, here.sweep.id), here.sweep)

    def replay_edited(self, letter_id: int, payload: bytes, /, *, because: str, max_replays: int | None = MAX_REPLAYS) -> int:
        """Replay a dead letter with another payload. The dead letter keeps its own.

        Args:
            letter_id: Id of the dead letter.
            payload: The new payload.
            because: Why, for the audit log.
            max_replays: Refuse a dead letter that was replayed this often. None: no limit.

        Returns:
            The id of the new job.
        """
        self._say(because)
        return edit.replayed(self._ledger, letter_id, payload, actor=self.actor, because=because, max_replays=max_replays)

    def export(
        self, *, ids: Collection[int | str] = (), kind: str | None = None, error: str | None = None, reason: str | None = None,
        status: LetterStatus | None = "pending", since: datetime | None = None, until: datetime | None = None,
        limit: int | None = None, because: str | None = None,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Return dead letters with headers and payloads, oldest first.

        Args:
            ids: Ids of dead letters.
            kind: Job type.
            error: Text in the error, or its signature.
            reason: Why the job died.
            status: Status, or None for all.
            since: Not older than this.
            until: Older than this.
            limit: Maximum number.
            because: Include secrets, for this reason. It is recorded in the audit log.

        Returns:
            An iterator of dictionaries.
        """
        if because is not None:
            self._say(because)
        some = dead.Selection(ids=dead.numbers(ids), kind=kind, error=error, reason=reason, since=since, until=until, limit=limit)
        return export.exported(self._ledger, some, status, actor=self.actor, because=because)

    # ---- sweeps ----

    def carry_out(self, sweep_id: int, /) -> Iterator[Applied]:
        """Carry out the rest of a sweep here, step by step, beside any worker.

        Args:
            sweep_id: Id of the sweep.

        Returns:
            An iterator of the steps.
        """
        found = self._ledger.sweeps.get(sweep_id)
        if found is not None and found.act in backfill.PARTITIONED:
            return self._requeued(sweep_id)
        return sweep.carried_out(self._ledger, sweep_id)

    def sweeps(self, *, limit: int = 100) -> list[Sweep]:
        """Return bulk operations, newest first.

        Args:
            limit: Maximum number.

        Returns:
            The sweeps.
        """
        return sweep.listed(self._ledger, limit=limit)

    def count_sweeps(self) -> int:
        """Return the number of bulk operations, counted up to 100,001.

        Returns:
            The number.
        """
        return sweep.count_sweeps(self._ledger)

    def sweep(self, sweep_id: int, /, *, after: int = -1, limit: int = 100) -> SweepReport | None:
        """Return one bulk operation with the result of each item.

        Args:
            sweep_id: Id of the sweep.
            after: Start after this position.
            limit: Maximum number of items.

        Returns:
            The report, or None.
        """
        return sweep.reported(self._ledger, sweep_id, after=after, limit=limit)

    def pause(self, sweep_id: int, /, *, because: str) -> Sweep:
        """Pause a running sweep.

        Args:
            sweep_id: Id of the sweep.
            because: Why, for the audit log.

        Returns:
            The sweep.

        Raises:
            NotAllowed: It is not running.
        """
        return self._move(sweep_id, "pause", because)

    def resume(self, sweep_id: int, /, *, because: str) -> Sweep:
        """Continue a sweep that was paused, halted by its canary, or left by its worker.

        Args:
            sweep_id: Id of the sweep.
            because: Why, for the audit log.

        Returns:
            The sweep.
        """
        return self._move(sweep_id, "resume", because)

    def cancel(self, sweep_id: int, /, *, because: str) -> Sweep:
        """Cancel the rest of a sweep. Completed items stay as they are.

        Args:
            sweep_id: Id of the sweep.
            because: Why, for the audit log.

        Returns:
            The sweep.
        """
        return self._move(sweep_id, "cancel", because)

    def _move(self, sweep_id: int, verb: str, because: str) -> Sweep:
        self._say(because)
        return sweep.moved(self._ledger, sweep_id, verb, actor=self.actor, because=because)

    @staticmethod
    def _say(because: str) -> None:
        if not isinstance(because, str) or not because.strip():
            raise ValueError(f"because= must say why: {because!r}")

    # ---- jobs ----

    def jobs(self, *, state: DisplayState | None = None, kind: str | None = None, limit: int = 100) -> list[JobLine]:
        """Return jobs. Queued ones are ordered by due time, ended ones by end, newest first.

        Args:
            state: State as shown, such as `"queued"`. None: all, newest first.
            kind: Job type.
            limit: Maximum number.

        Returns:
            The jobs.
        """
        return jobs.listed(self._ledger, state=state, kind=kind, limit=limit)

    def job(self, job_id: int, /) -> JobReport | None:
        """Return everything that is known about a job.

        Args:
            job_id: Id of the job.

        Returns:
            The report, or None.
        """
        return jobs.shown(self._ledger, job_id)

    def reveal(self, of: Of, number: int, /, *, because: str) -> Revealed:
        """Return a payload with its secrets. This is recorded in the audit log.

        Args:
            of: `"job"` or `"dead"`.
            number: Id of the job or dead letter.
            because: Why, for the audit log.

        Returns:
            The payload.
        """
        self._say(because)
        return reveal.revealed(self._ledger, of, number, actor=self.actor, because=because)

    def stacks(self) -> list[Stack]:
        """Return the retry layers of the app, by job type. Empty for a bare ledger.

        Returns:
            The stacks.
        """
        return stacks.stacks(self._app)

    # ---- events ----

    def events(self, *, source: str | None = None, of_type: str | None = None, limit: int = 100) -> list[ReceivedEvent]:
        """Return received events, newest first.

        Args:
            source: Source of the events.
            of_type: Type of the events.
            limit: Maximum number.

        Returns:
            The events.
        """
        return events.listed(self._ledger, source=source, type_=of_type, limit=limit)

    def event(self, event_id: str, /, *, source: str | None = None) -> EventReport | None:
        """Return an event and what each handler did with it.

        Args:
            event_id: Id of the event.
            source: Source of the event. Needed if several sources have this id.

        Returns:
            The report, or None.

        Raises:
            NotAllowed: Several sources have this id.
        """
        return events.shown(self._ledger, event_id, source)

    def replay_event(
        self, event_id: str, /, *, because: str, source: str | None = None, handlers: Collection[str] = ()
    ) -> dict[str, str]:
        """Replay an event.

        Args:
            event_id: Id of the event.
            because: Why, for the audit log.
            source: Source of the event.
            handlers: Names of handlers. Default: all that had the event.

        Returns:
            The outcome by handler.

        Raises:
            ValueError: A name is not a handler of this event type. Nothing was changed.
            NotAllowed: There is no such event, or there are several.
        """
        self._say(because)
        return events.replayed(self._app, event_id, source, handlers, actor=self.actor, because=because)

    # ---- the ledger ----

    def audit(
        self, *, actor: str | None = None, action: str | None = None, since: datetime | None = None,
        until: datetime | None = None, limit: int = 100, people: bool = False,
    ) -> list[Decision]:  # fmt: skip
        """Return entries of the audit log, newest first.

        Args:
            actor: Who decided.
            action: What was done.
            since: Not older than this.
            until: Older than this.
            limit: Maximum number.
            people: Leave out automatic decisions.

        Returns:
            The entries.
        """
        return audit.decisions(self._ledger, actor=actor, action=action, since=since, until=until, limit=limit, people=people)

    def verify(self, anchor: str | None = None, /) -> Chain:
        """Verify the hash chain of the audit log.

        Args:
            anchor: A hash that was noted earlier, to compare with.

        Returns:
            The result.
        """
        return audit.verified(self._ledger, anchor)

    def status(self) -> Status:
        """Return schema version, size and counts of the ledger.

        Returns:
            The status.
        """
        return ledger.status(self._ledger)

    def doctor(self, *, quiet: float = QUIET) -> Health:
        """Check the health of the ledger.

        Args:
            quiet: Seconds without a heartbeat after which a worker counts as offline.

        Returns:
            The problems that were found.
        """
        return doctor.diagnosed(self._app, quiet=quiet)

    def pulse(self) -> str:
        """Return a text that changes whenever something changed that an operator can see.

        Returns:
            The text.
        """
        return changes.pulse(self._ledger)

    def reap(self) -> list[int]:
        """Take back expired leases. Workers do this regularly.

        Returns:
            The ids of the jobs.
        """
        return ledger.reaped(self._ledger)

    def recount(self, *, because: str) -> dict[str, dict[str, int]]:
        """Correct the counters from the rows.

        Args:
            because: Why, for the audit log.

        Returns:
            The corrections by job type.
        """
        return ledger.recounted(self._ledger, actor=self.actor, because=because)
