"""Operator: what a person, or an automation with a name, may do to a ledger. The CLI and the console are skins over this."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..core.lazy import deferred
from ..errors import Drift
from .actor import checked
from .defaults import MAX_REPLAYS, QUIET
from .partitioning import Partitioning
from .watching import Watching

if TYPE_CHECKING:
    from ..app import App
    from ..idempotency.record import Status as KeyStatus
    from ..ledger.ledger import Ledger
    from ..ledger.state import Shown
    from ..ledger.state import Status as LetterStatus
    from . import (
        audit,
        backfill,
        dead,
        doctor,
        edit,
        erase,
        events,
        export,
        jobs,
        keys,
        ledger,
        own_items,
        plan,
        reveal,
        stacks,
        sweep,
    )
    from . import batch as items_of
    from . import pulse as changes
    from .audit import Chain, Decision
    from .batch import Batch, GivenUp, Reopened, Reopening
    from .dead import Group, Letter, LetterReport, Selection
    from .erase import Erasure
    from .events import EventReport, ReceivedEvent
    from .finding import Health
    from .jobs import JobLine, JobReport
    from .keys import HeldKey, KeyReport
    from .ledger import Status
    from .plan import Plan
    from .reveal import Of, Revealed
    from .stacks import Stack
    from .sweep import Applied, Sweep, SweepReport
else:  # a command of the CLI needs one or two of them
    audit, backfill, dead, doctor, edit, erase, events, export, jobs, keys, ledger = deferred(
        __package__, "audit", "backfill", "dead", "doctor", "edit", "erase", "events", "export", "jobs", "keys", "ledger"
    )
    own_items, plan, reveal, stacks, sweep, items_of, changes = deferred(
        __package__, "own_items", "plan", "reveal", "stacks", "sweep", "batch", "pulse"
    )


class Operator(Watching, Partitioning):
    """Somebody who looks after a ledger. First a plan, then apply it, with a reason. Threads may share one."""

    def __init__(self, app: App | Ledger, /, *, actor: str) -> None:
        """actor: who does all this, as the audit will have it."""
        self.actor = checked(actor)
        self._app = app

    # ---- dead letters ----

    def dead(
        self, *, kind: str | None = None, error: str | None = None, reason: str | None = None,
        status: LetterStatus | None = "pending", since: datetime | None = None, limit: int = 100, before: int | None = None,
    ) -> list[Letter]:  # fmt: skip
        """Dead letters, the newest first. status: None for those that were dealt with too. before: older ones than this."""
        some = dead.Selection.of(kind=kind, error=error, reason=reason, since=since, limit=limit)
        return dead.listed(self._ledger, some, status, before=before)

    def dead_groups(
        self, *, kind: str | None = None, error: str | None = None, reason: str | None = None,
        status: LetterStatus | None = "pending", since: datetime | None = None,
    ) -> list[Group]:  # fmt: skip
        """The newest thousand of them, put together by kind and cause; the largest group first."""
        return dead.grouped(self._ledger, dead.Selection.of(kind=kind, error=error, reason=reason, since=since), status)

    def letter(self, letter_id: int, /) -> LetterReport | None:
        """All that is known of one; None: there is none of that number."""
        return dead.shown(self._ledger, letter_id)

    def replay(
        self, *, ids: Collection[int | str] = (), kind: str | None = None, error: str | None = None, reason: str | None = None,
        since: datetime | None = None, source: str | None = None, limit: int | None = None, upto: int | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to give dead letters a new job each. Nothing is changed and nothing is recorded before `apply`."""
        return plan.planned(self._ledger, "replay", self._some(ids, kind, error, reason, since, source, limit, upto))

    def discard(
        self, *, ids: Collection[int | str] = (), kind: str | None = None, error: str | None = None, reason: str | None = None,
        since: datetime | None = None, source: str | None = None, limit: int | None = None, upto: int | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to drop dead letters for good. Nothing is changed and nothing is recorded before `apply`."""
        return plan.planned(self._ledger, "discard", self._some(ids, kind, error, reason, since, source, limit, upto))

    def begin(
        self, what: Plan, /, *, because: str, rate: float | None = None, canary: int = 0, max_replays: int | None = MAX_REPLAYS,
        seen: str | None = None, halt_on: float | None = None, without_raw: bool = False, accept_drift: bool = False,
    ) -> Sweep:  # fmt: skip
        """Write down that this shall be done: a sweep, that any worker carries out, and that outlives you.

        rate: at most so many in a second. canary: so many first, and the rest only when all of them have ended well.
        max_replays: leave alone what was replayed so often already; None: never mind. seen: the digest of the plan that
        somebody has looked at; Drift where this is another.

        Of partitions: halt_on: stop where more than this part of the verdicts are rejections. without_raw: retry partitions
        without raw data too, which are skipped otherwise. accept_drift: those that are no longer as planned are
        skipped, and no error.
        """
        self._say(because)
        if seen is not None and seen != what.digest:
            raise Drift(f"they are no longer what you looked at, but {what.count:,}: look again. Nothing was done")
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
        """Do what was planned, here and now, to those that are still as they were. Killed in between, workers go on with it.

        As `begin` has it; with a canary this waits until its jobs have ended, which takes a worker. Partitions are queued here,
        as far as rate and canary let them; workers extract them. A backfill is only written down.
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
        """What a sweep has done in all, here and by workers at the same time. here: the steps that were taken here."""
        if here.sweep.act in backfill.PARTITIONED:
            return here
        return sweep.Applied(*sweep.acted(self._ledger, here.sweep.id), here.sweep)

    def replay_edited(self, letter_id: int, payload: bytes, /, *, because: str, max_replays: int | None = MAX_REPLAYS) -> int:
        """Give a dead letter a new job with another payload; the job's id. The letter keeps its own."""
        self._say(because)
        return edit.replayed(self._ledger, letter_id, payload, actor=self.actor, because=because, max_replays=max_replays)

    def export(
        self, *, ids: Collection[int | str] = (), kind: str | None = None, error: str | None = None, reason: str | None = None,
        status: LetterStatus | None = "pending", since: datetime | None = None, limit: int | None = None,
        because: str | None = None,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Dead letters with headers and payloads, the oldest first. because: with the secrets in them, in the audit."""
        if because is not None:
            self._say(because)
        some = dead.Selection.of(ids=ids, kind=kind, error=error, reason=reason, since=since, limit=limit)
        return export.exported(self._ledger, some, status, actor=self.actor, because=because)

    # ---- sweeps ----

    def carry_out(self, sweep_id: int, /) -> Iterator[Applied]:
        """Do the rest of a sweep here, step by step, beside any worker that does: for those who show how far it is."""
        found = self._ledger.sweeps.get(sweep_id)
        if found is not None and found.act in backfill.PARTITIONED:
            return self._requeued(sweep_id)
        return sweep.carried_out(self._ledger, sweep_id)

    def sweeps(self, *, limit: int = 100) -> list[Sweep]:
        """What was done to many at once, and what is being done, the newest first."""
        return sweep.listed(self._ledger, limit=limit)

    def sweep(self, sweep_id: int, /, *, after: int = -1, limit: int = 100) -> SweepReport | None:
        """One of them, with what became of each from the place `after` on; None: there is none of that number."""
        return sweep.reported(self._ledger, sweep_id, after=after, limit=limit)

    def pause(self, sweep_id: int, /, *, because: str) -> Sweep:
        """Do nothing more of it for now. NotAllowed: it is not running."""
        return self._move(sweep_id, "pause", because)

    def resume(self, sweep_id: int, /, *, because: str) -> Sweep:
        """Go on with one that was paused, that was halted because its canary died, or that nobody carries out any more."""
        return self._move(sweep_id, "resume", because)

    def cancel(self, sweep_id: int, /, *, because: str) -> Sweep:
        """Never do the rest of it. What was done stays done."""
        return self._move(sweep_id, "cancel", because)

    def _move(self, sweep_id: int, verb: str, because: str) -> Sweep:
        self._say(because)
        return sweep.moved(self._ledger, sweep_id, verb, actor=self.actor, because=because)

    @staticmethod
    def _say(because: str) -> None:
        if not isinstance(because, str) or not because.strip():
            raise ValueError(f"because= must say why: {because!r}")

    @staticmethod
    def _some(
        ids: Collection[int | str], kind: str | None, error: str | None, reason: str | None, since: datetime | None,
        source: str | None, limit: int | None, upto: int | None,
    ) -> Selection:  # fmt: skip
        selection = dead.Selection.of(
            ids=ids, kind=kind, error=error, reason=reason, since=since, source=source, limit=limit, upto=upto
        )
        if selection.everything:
            raise ValueError("say which: by number, or by kind, error, reason or since; nothing at all would mean everything")
        return selection

    # ---- jobs ----

    def jobs(self, *, state: Shown | None = None, kind: str | None = None, limit: int = 100) -> list[JobLine]:
        """Jobs in a state by its name: waiting ones as they are due, ended ones the last first. None: all, the newest first."""
        return jobs.listed(self._ledger, state=state, kind=kind, limit=limit)

    def job(self, job_id: int, /) -> JobReport | None:
        """All that is known of one; None: there is none of that number."""
        return jobs.shown(self._ledger, job_id)

    def reveal(self, of: Of, number: int, /, *, because: str) -> Revealed:
        """A payload with its secrets in it, of a job or a dead letter. That it was shown, to whom and why, is in the audit."""
        self._say(because)
        return reveal.revealed(self._ledger, of, number, actor=self.actor, because=because)

    def stacks(self) -> list[Stack]:
        """What tries again in the app, kind by kind; of a bare ledger nothing is known."""
        return stacks.stacks(self._app)

    # ---- events ----

    def events(self, *, source: str | None = None, of_type: str | None = None, limit: int = 100) -> list[ReceivedEvent]:
        """Events that were received, the newest first."""
        return events.listed(self._ledger, source=source, type_=of_type, limit=limit)

    def event(self, event_id: str, /, *, source: str | None = None) -> EventReport | None:
        """One of them, with what each handler has made of it; None: there is none. NotAllowed: of several sources."""
        return events.shown(self._ledger, event_id, source)

    def replay_event(
        self, event_id: str, /, *, because: str, source: str | None = None, handlers: Collection[str] = ()
    ) -> dict[str, str]:
        """Replay an event to these handlers, or to all that had it; the outcome by handler.

        Raises:
            ValueError: A name is not a handler of this type of event: not registered in the app, and the ledger has no job
                of it for a recent event of the type. Nothing is changed then.
            NotAllowed: There is no such event, or there are several.
        """
        self._say(because)
        return events.replayed(self._app, event_id, source, handlers, actor=self.actor, because=because)

    # ---- idempotency keys ----

    def keys(
        self, *, domain: str | None = None, user: str | None = None, status: KeyStatus | None = None, abandoned: bool = False,
        limit: int = 100,
    ) -> list[HeldKey]:  # fmt: skip
        """Keys, by their names. abandoned: those in processing whose holder has crashed."""
        return keys.listed(self._ledger, domain=domain, user=user, status=status, abandoned=abandoned, limit=limit)

    def key(self, key: str, /) -> KeyReport | None:
        """All that is known of one; None: nothing is stored under it."""
        return keys.shown(self._ledger, key)

    def release(self, key: str, /, *, because: str, force: bool = False) -> HeldKey:
        """Forget what is known of a key, so that the next caller begins anew. NotAllowed: somebody is at it right now."""
        return keys.released(self._ledger, key, actor=self.actor, because=because, force=force)

    # ---- batches ----

    def batches(self) -> list[Batch]:
        """How the items of every batch stand."""
        return items_of.batches(self._ledger)

    def giveups(
        self, *, batch: str | None = None, reason: str | None = None, since: datetime | None = None, limit: int = 100
    ) -> list[GivenUp]:
        """Items that were given up, the newest first."""
        return items_of.giveups(self._ledger, batch=batch, reason=reason, since=since, limit=limit)

    def reopen(
        self, batch: str, /, *, items: Collection[str] = (), reason: str | None = None, since: datetime | None = None,
        limit: int = 100,
    ) -> Reopening:  # fmt: skip
        """Plan to let items that were given up be sent again. Nothing is changed and nothing is recorded before `reopening`."""
        return items_of.planned(self._ledger, batch, items=items, reason=reason, since=since, limit=limit)

    def reopening(self, what: Reopening, /, *, because: str, store: str | None = None) -> Iterator[Reopened]:
        """Carry it out, step by step; each step is one transaction with its entry in the audit.

        store: items of your own, as `module:object`, instead of the ledger's.
        """
        if not isinstance(because, str) or not because.strip():
            raise ValueError(f"because= must say why: {because!r}")
        if store is not None:
            return own_items.applied(self._ledger, store, what, actor=self.actor, because=because)
        return items_of.applied(self._ledger, what, actor=self.actor, because=because)

    # ---- one user's data ----

    def erasing(self, user: str, /) -> Erasure:
        """Plan to erase what the ledger knows of a user. Nothing is changed and nothing is recorded before `erase`."""
        return erase.planned(self._ledger, user)

    def erase(self, what: Erasure, /, *, because: str) -> tuple[str, ...]:
        """Carry it out. The audit says that it was done, and not whose data it was."""
        return erase.erased(self._ledger, what, actor=self.actor, because=because)

    # ---- the ledger ----

    def audit(
        self, *, actor: str | None = None, action: str | None = None, since: datetime | None = None, limit: int = 100,
        people: bool = False,
    ) -> list[Decision]:  # fmt: skip
        """Who decided what, the newest first. people: not what policies decided by themselves."""
        return audit.decisions(self._ledger, actor=actor, action=action, since=since, limit=limit, people=people)

    def verify(self, anchor: str | None = None, /) -> Chain:
        """Whether the audit is as it was written."""
        return audit.verified(self._ledger, anchor)

    def status(self) -> Status:
        """How the ledger stands."""
        return ledger.status(self._ledger)

    def doctor(self, *, quiet: float = QUIET) -> Health:
        """What is wrong with it."""
        return doctor.diagnosed(self._app, quiet=quiet)

    def pulse(self) -> str:
        """Another text whenever anything has changed that an operator might look at."""
        return changes.pulse(self._ledger)

    def reap(self) -> list[int]:
        """Take back leases that ran out; the ids of their jobs. Any worker does this too."""
        return ledger.reaped(self._ledger)

    def recount(self, *, because: str) -> dict[str, dict[str, int]]:
        """Set the counts right by the rows; what was added to each."""
        return ledger.recounted(self._ledger, actor=self.actor, because=because)
