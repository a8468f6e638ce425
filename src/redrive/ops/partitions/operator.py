"""Desk: partitions as an operator looks at them and steers them. What has many tried again is planned: see Operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...partitions.key import Day, Partition, named
from ...partitions.model import Act, Explanation, Facts, Selection, Shade, Source
from ...partitions.retry_schedule import share as part
from ..sweep import Sweep
from ..target.target import ledger_of
from . import backfill, calendar, lost, markers
from . import history as lookup
from .backfill import BackfillReport
from .calendar import Calendar
from .datasets import checked, known, terms_of
from .history import Explained, History
from .lost import Lost, RawState
from .markers import Chosen, Steer
from .selection import selected

if TYPE_CHECKING:
    from ...partitions.control.plane import Control
    from ...partitions.queries import Register
    from ..target.target import Operated

__all__ = ["Act", "Chosen", "Desk", "Explanation", "Facts", "Source"]


class Desk:
    """Partitions of one ledger, in somebody's name. Threads may share one."""

    def __init__(self, app: Operated, actor: str, /) -> None:
        self._app, self._actor = app, actor

    @staticmethod
    def selection(*words: str, **narrowed: Any) -> Selection:
        """Which: partitions in full, any number; or one short form, such as crm/acme/orders/2026-06-01..2026-06-30 (* for any),
        `crm/orders` or `crm`; narrowed down by source, query, customers, since, until, status, error, min_attempts, lane."""
        return selected(words, **narrowed)

    # ---- seen ----

    def datasets(self) -> list[tuple[str, str]]:
        """Every source and query that there is: registered, or with partitions."""
        return known(self._app)

    def inspect(self, selection: Selection | None = None, /, *, after: int = 0, limit: int = 100) -> list[Facts]:
        """Partitions, page by page. after: those behind this number. A partition that nobody has asked for has no facts."""
        some = checked(self._app, Selection() if selection is None else selection)
        return self._register().find(some, after=after, limit=limit)

    def lost(self, selection: Selection | None = None, /, *, after: int = 0, limit: int = 100) -> list[Lost]:
        """What was accepted, and cannot be read: its raw data is gone from the store, or has been changed. Looks at every run in
        force that is selected, which takes as long as they are many. NotAllowed: nobody here knows the store."""
        some = checked(self._app, Selection() if selection is None else selection)
        return lost.lost(self._app, self._register(), some, after=after, limit=limit)

    def raw_states(self, facts: Sequence[Facts], /) -> list[RawState]:
        """Look at the files of these partitions, in their order. Their bytes are not read."""
        return lost.raw_states(self._app, facts)

    def failures(self, selection: Selection | None = None, /, *, terminal: bool = False, limit: int = 100) -> list[Facts]:
        """What failed, or with a newer run that was rejected; terminal: only what is not tried any more. The last first."""
        return lookup.failures(self._register(), checked(self._app, selection or Selection()), terminal=terminal, limit=limit)

    def reasons(self, *, source: str | None = None, query: str | None = None) -> dict[str, int]:
        """Why they failed, the most frequent first."""
        return self._register().reasons(source=source, query_name=query)

    def history(self, partition: Partition | str, /) -> History | None:
        """Every attempt at one, the newest first, with its verdict; None: nothing is stored of it."""
        return lookup.history(self._app, self._key(partition))

    def explain(self, partition: Partition | str, /) -> Explained:
        """How one stands, why it is not running now, and what could be done."""
        return lookup.explained(self._app, self._key(partition))

    def counts(
        self, *, source: str | None = None, query: str | None = None, since: Day | None = None, until: Day | None = None
    ) -> dict[tuple[str, str], Mapping[Shade, int]]:
        """How many of each dataset are in which state."""
        return lookup.counts(self._register(), source, query, since, until)

    def calendar(
        self, since: Day | None = None, until: Day | None = None, /, *, source: str | None = None, query: str | None = None
    ) -> Calendar:
        """How the days of every dataset stand; without dates the last eight weeks."""
        checked(self._app, Selection(source=source, query_name=query))
        return calendar.calendar(self._app, since, until, source=source, query=query)

    def sources(self) -> list[Source]:
        """Which sources are paused, by whom, until when."""
        return self._register().sources()

    # ---- sweeps over partitions ----

    def backfills(self, *, limit: int = 100, acts: Collection[str] = ("backfill",)) -> list[Sweep]:
        """Backfills, the newest first; acts: other sweeps over partitions."""
        return backfill.listed(self._app, limit=limit, acts=acts)

    def count_backfills(self, *, acts: Collection[str] = ("backfill",)) -> int:
        """Return the number of backfills, counted up to 100,001. acts: other sweeps over partitions."""
        return backfill.count_backfills(self._app, acts)

    def progress(self, sweep_id: int, /) -> BackfillReport | None:
        """How far one is, and how long the rest takes; None: there is none of that number."""
        return backfill.reported(self._app, sweep_id)

    def share(self, sweep_id: int, share: float, /, *, because: str) -> Sweep:
        """Give it another part of all work, from the next claim on."""
        self._control().set_share(sweep_id, part("share", share), actor=self._actor, because=because)
        return backfill.written(self._app, sweep_id)

    # ---- steered, each in the audit ----

    def chosen(self, act: Steer, selection: Selection, /, *, most: int = markers.MOST) -> Chosen:
        """Plan to mark, clear, pause or unpause these. Nothing is changed and nothing is recorded before `steer`."""
        return markers.chosen(self._app, act, selection, most)

    def steer(self, what: Chosen, /, *, because: str, grant: int | None = None) -> Act:
        """Do it. grant: of `clear_terminal`: so many new attempts; None: as many as the policy has."""
        return markers.steered(self._control(), what, actor=self._actor, because=because, grant=grant)

    def rollback(self, partition: Partition | str, run_id: str | None = None, /, *, because: str) -> Facts:
        """Back to an earlier run that was accepted, whose raw data is there and is what was written; None: to the last before
        the one in force. NotAllowed: there is none, or nobody here can see its raw data."""
        return markers.rolled_back(self._app, self._key(partition), run_id, actor=self._actor, because=because)

    def pause_source(self, source: str, /, *, because: str, until: datetime | None = None) -> Source:
        """Hand out nothing of a source, until then, or until somebody says so."""
        self._there(source)
        return self._control().pause_source(source, until=until, actor=self._actor, because=because)

    def unpause_source(self, source: str, /, *, because: str) -> Source:
        """Hand out work of it again."""
        self._there(source)
        return self._control().unpause_source(source, actor=self._actor, because=because)

    def _there(self, source: str) -> None:
        checked(self._app, Selection(source=named("source", source)))

    def _key(self, partition: Partition | str) -> Partition:
        key = Partition.parse(partition) if isinstance(partition, str) else partition
        checked(self._app, Selection(keys=(key,)))
        return key

    def _register(self) -> Register:
        from ...partitions.queries import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

        return Register(ledger_of(self._app))

    def _control(self) -> Control:
        from ...partitions.control.plane import Control  # noqa: PLC0415  # the same

        return Control(ledger_of(self._app), terms_of(self._app))
