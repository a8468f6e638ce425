"""Operator: what a person, or an automation with a name, may do to a ledger. The CLI and the console are skins over this."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from . import audit, dead, doctor, jobs, keys, ledger, plan
from . import batch as items_of
from .audit import Chain, Decision
from .batch import Batch, GivenUp, Reopened, Reopening
from .dead import Letter, LetterReport, Selection
from .finding import Health
from .jobs import JobLine, JobReport
from .keys import HeldKey, KeyReport
from .ledger import Status
from .plan import Applied, Plan
from .source import ledger_of

if TYPE_CHECKING:
    from ..app import App
    from ..idempotency.record import Status as KeyStatus
    from ..ledger.ledger import Ledger
    from ..ledger.state import Shown
    from ..ledger.state import Status as LetterStatus


class Operator:
    """Somebody who looks after a ledger. First a plan, then apply it, with a reason. Threads may share one."""

    def __init__(self, app: App | Ledger, /, *, actor: str) -> None:
        """actor: who does all this, as the audit will have it."""
        if not isinstance(actor, str) or not actor.strip():
            raise ValueError(f"actor= must say who does this: {actor!r}")
        self.actor = actor
        self._app = app

    @property
    def ledger(self) -> Ledger:
        """What is looked after; an app's is opened at first use."""
        return ledger_of(self._app)

    # ---- dead letters ----

    def dead(
        self, *, kind: str | None = None, error: str | None = None, reason: str | None = None,
        status: LetterStatus | None = "pending", since: datetime | None = None, limit: int = 100,
    ) -> list[Letter]:  # fmt: skip
        """Dead letters, the newest first. status: None for those that were dealt with too."""
        return dead.listed(self.ledger, Selection.of(kind=kind, error=error, reason=reason, since=since, limit=limit), status)

    def letter(self, letter_id: int, /) -> LetterReport | None:
        """All that is known of one; None: there is none of that number."""
        return dead.shown(self.ledger, letter_id)

    def replay(
        self, *, ids: Collection[int | str] = (), kind: str | None = None, error: str | None = None, reason: str | None = None,
        since: datetime | None = None, limit: int | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to give dead letters a new job each. Nothing is changed and nothing is recorded before `apply`."""
        return plan.planned(self.ledger, "replay", self._some(ids, kind, error, reason, since, limit))

    def discard(
        self, *, ids: Collection[int | str] = (), kind: str | None = None, error: str | None = None, reason: str | None = None,
        since: datetime | None = None, limit: int | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to drop dead letters for good. Nothing is changed and nothing is recorded before `apply`."""
        return plan.planned(self.ledger, "discard", self._some(ids, kind, error, reason, since, limit))

    def apply(self, what: Plan, /, *, because: str) -> Applied:
        """Do what was planned, to those that are still as they were. Stopped in between, whole steps are done and audited."""
        done: dict[int, int] = {}
        skipped: dict[int, str] = {}
        for step in self.applying(what, because=because):
            done |= step.done
            skipped |= step.skipped
        return Applied(done, skipped)

    def applying(self, what: Plan, /, *, because: str) -> Iterator[Applied]:
        """The same, step by step: for those who show how far it is."""
        if not isinstance(because, str) or not because.strip():
            raise ValueError(f"because= must say why: {because!r}")
        return plan.applied(self.ledger, what, actor=self.actor, because=because)

    @staticmethod
    def _some(
        ids: Collection[int | str], kind: str | None, error: str | None, reason: str | None, since: datetime | None,
        limit: int | None,
    ) -> Selection:  # fmt: skip
        selection = Selection.of(ids=ids, kind=kind, error=error, reason=reason, since=since, limit=limit)
        if selection.everything:
            raise ValueError("say which: by number, or by kind, error, reason or since; nothing at all would mean everything")
        return selection

    # ---- jobs ----

    def jobs(self, *, state: Shown | None = None, kind: str | None = None, limit: int = 100) -> list[JobLine]:
        """Jobs in a state by its name: waiting ones as they are due, ended ones the last first. None: all, the newest first."""
        return jobs.listed(self.ledger, state=state, kind=kind, limit=limit)

    def job(self, job_id: int, /) -> JobReport | None:
        """All that is known of one; None: there is none of that number."""
        return jobs.shown(self.ledger, job_id)

    # ---- idempotency keys ----

    def keys(
        self, *, domain: str | None = None, user: str | None = None, status: KeyStatus | None = None, abandoned: bool = False,
        limit: int = 100,
    ) -> list[HeldKey]:  # fmt: skip
        """Keys, by their names. abandoned: those in processing whose holder has crashed."""
        return keys.listed(self.ledger, domain=domain, user=user, status=status, abandoned=abandoned, limit=limit)

    def key(self, key: str, /) -> KeyReport | None:
        """All that is known of one; None: nothing is stored under it."""
        return keys.shown(self.ledger, key)

    def release(self, key: str, /, *, because: str, force: bool = False) -> HeldKey:
        """Forget what is known of a key, so that the next caller begins anew. NotAllowed: somebody is at it right now."""
        return keys.released(self.ledger, key, actor=self.actor, because=because, force=force)

    # ---- batches ----

    def batches(self) -> list[Batch]:
        """How the items of every batch stand."""
        return items_of.batches(self.ledger)

    def giveups(
        self, *, batch: str | None = None, reason: str | None = None, since: datetime | None = None, limit: int = 100
    ) -> list[GivenUp]:
        """Items that were given up, the newest first."""
        return items_of.giveups(self.ledger, batch=batch, reason=reason, since=since, limit=limit)

    def reopen(
        self, batch: str, /, *, items: Collection[str] = (), reason: str | None = None, since: datetime | None = None,
        limit: int = 100,
    ) -> Reopening:  # fmt: skip
        """Plan to let items that were given up be sent again. Nothing is changed and nothing is recorded before `reopening`."""
        return items_of.planned(self.ledger, batch, items=items, reason=reason, since=since, limit=limit)

    def reopening(self, what: Reopening, /, *, because: str) -> Iterator[Reopened]:
        """Carry it out, step by step; each step is one transaction with its entry in the audit."""
        if not isinstance(because, str) or not because.strip():
            raise ValueError(f"because= must say why: {because!r}")
        return items_of.applied(self.ledger, what, actor=self.actor, because=because)

    # ---- the ledger ----

    def audit(
        self, *, actor: str | None = None, action: str | None = None, since: datetime | None = None, limit: int = 100
    ) -> list[Decision]:
        """Who decided what, the newest first."""
        return audit.decisions(self.ledger, actor=actor, action=action, since=since, limit=limit)

    def verify(self, anchor: str | None = None, /) -> Chain:
        """Whether the audit is as it was written."""
        return audit.verified(self.ledger, anchor)

    def status(self) -> Status:
        """How the ledger stands."""
        return ledger.status(self.ledger)

    def doctor(self, *, quiet: float = doctor.QUIET) -> Health:
        """What is wrong with it."""
        return doctor.diagnosed(self.ledger, quiet=quiet)

    def reap(self) -> list[int]:
        """Take back leases that ran out; the ids of their jobs. Any worker does this too."""
        return ledger.reaped(self.ledger)

    def recount(self, *, because: str) -> dict[str, dict[str, int]]:
        """Set the counts right by the rows; what was added to each."""
        return ledger.recounted(self.ledger, actor=self.actor, because=because)
