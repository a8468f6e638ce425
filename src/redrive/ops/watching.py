"""Watching: what an operator sees before doing anything. Costs the same however much is in the ledger."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from ..core.lazy import deferred
from .defaults import QUIET
from .source import ledger_of

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..ledger.record import Tally
    from . import failures, journal, overview, rejections, schedules, workers
    from .failures import Failure, FailureReport
    from .journal import Happening, Tail
    from .overview import Overview
    from .rejections import Rejection
    from .schedules import Schedule
    from .source import Operated
    from .workers import Workers
else:  # as operator.py has it
    failures, journal, overview, rejections, schedules, workers = deferred(
        __package__, "failures", "journal", "overview", "rejections", "schedules", "workers"
    )


class Watching:
    """What there is to see. A facet of Operator, which says who may share it."""

    _app: Operated

    @property
    def _ledger(self) -> Ledger:
        """What is looked after; an app's is opened at first use."""
        return ledger_of(self._app)

    @property
    def url(self) -> str:
        """Where it lies, without its password."""
        return self._ledger.url

    def now(self) -> datetime:
        """By the ledger's clock: all its times are."""
        return self._ledger.now()

    def counts(self) -> dict[str, Tally]:
        """How many jobs of each kind are where."""
        return self._ledger.counts()

    def overview(self, *, quiet: float = QUIET) -> Overview:
        """What is seen first: how every kind stands, what is wrong, since when. quiet: seconds until a worker counts as gone."""
        return overview.overview(self._ledger, quiet=quiet)

    def failures(self, *, kind: str | None = None, since: datetime | None = None, limit: int = 100) -> list[Failure]:
        """What jobs fail, by kind and by what the errors are alike in: what fails most now first. See `rejections` too."""
        return failures.failures(self._ledger, kind=kind, since=since, limit=limit)

    def failure(self, kind: str, signature: str, /, *, limit: int = 50) -> FailureReport | None:
        """One of them, with the last of its dead letters; None: nothing failed like this."""
        return failures.failure(self._ledger, kind, signature, limit=limit)

    def rejections(self, *, dataset: str | None = None, since: datetime | None = None, limit: int = 100) -> list[Rejection]:
        """What partitions fail, by dataset (such as crm/orders) and by why: what was judged last first."""
        return rejections.rejections(self._ledger, dataset=dataset, since=since, limit=limit)

    def workers(self, *, quiet: float = QUIET) -> Workers:
        """Who works, or did, and what each has in its hands."""
        return workers.workers(self._ledger, quiet=quiet)

    def nobody(self, *, quiet: float = QUIET) -> str | None:
        """That no worker is there, and since when, in a sentence: what was begun is carried out by nobody. None: one is."""
        return workers.missing(self._ledger, quiet=quiet)

    def schedules(self) -> list[Schedule]:
        """What fires by itself."""
        return schedules.schedules(self._ledger)

    def journal(
        self, *, kind: str | None = None, events: Collection[str] = (), since: datetime | None = None, limit: int = 100
    ) -> list[Happening]:
        """What happened last, to any job, what was decided, and which partitions were rejected; the newest first."""
        return journal.journal(self._ledger, kind=kind, events=events, since=since, limit=limit)

    def tail(self, *, kind: str | None = None, events: Collection[str] = (), limit: int = 20) -> Tail:
        """The same, and on from there: each look at it gives what is new."""
        return journal.Tail(self._ledger, kind=kind, events=events, limit=limit)
