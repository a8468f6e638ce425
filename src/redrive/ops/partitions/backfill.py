"""Backfills: ranges of days, as an operator plans them and sees how far they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...core.text import pluralise
from ...errors import NotAllowed
from ...partitions.key import Day
from ..sweep import Applied, Sweep, count_sweeps, of_stored
from ..target.imported import meant
from ..target.target import ledger_of
from .datasets import extraction, label, terms_of

if TYPE_CHECKING:
    from ...partitions.control.progress import Progress
    from ...partitions.control.sweeps import Grid
    from ...partitions.model import Source
    from ..target.target import Operated

PARTITIONED = ("backfill", "fresh", "retry", "reprocess", "revalidate")
"""Sweeps over partitions; others are over dead letters."""
ASKED = 500
"""Customers that are looked for: who names more has them from somewhere."""
NAMED = 5
"""Customers that a message names."""
TELLING = 20
"""Partitions that must have ended before one says how long the rest takes."""


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """How far a sweep over partitions is. Immutable."""

    sweep: Sweep
    progress: Progress
    left: timedelta | None
    """How long the rest takes at the pace so far; None: nobody can say, or nothing is left."""
    reasons: Mapping[str, int]
    """What fails in its datasets now, the most frequent first."""
    now: datetime
    paused: Sequence[Source] = ()
    """Sources of its datasets of which nothing is handed out."""

    @property
    def said(self) -> str:
        """What it is about, in one line."""
        names = ", ".join(label(*one) for one in self.progress.datasets) or "nothing"
        if self.progress.since is None or self.progress.until is None:
            return f"{names}: {pluralise(self.sweep.total, 'partition')}"
        days = (self.progress.until - self.progress.since).days + 1
        whose = pluralise(self.sweep.total // days, "customer")
        return f"{names} × {whose} × {self.progress.since} to {self.progress.until} = {self.sweep.total:,}"


def grid(
    app: Operated, source: str, query: str, customers: Collection[str] | None, since: Day, until: Day | None, /, *, newest: bool
) -> Grid:
    """The range. ValueError: reversed, without customers, or nobody here knows them."""
    from ...partitions.control.sweeps import Grid  # noqa: PLC0415  # not needed for a look

    if customers is None:
        known = extraction(app, source, query)
        if known is None:
            raise ValueError(
                f"customers of {source}/{query} are unknown to the ledger; name them, or name the app that knows them "
                "(--ledger module:app; in code: Operator(app, ...))"
            )
        customers = known.everyone()
    return Grid.of(source, query, customers, since, until, newest=newest)


def strangers(app: Operated, asked: Grid, /) -> dict[str, str]:
    """Return customers of a range without a partition, each with the name that may have been meant.

    They may be new, or misspelt, and then every day of theirs would fail. ValueError: the app knows
    its customers, and they are not among them.
    """
    from ...partitions.queries import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    registered = extraction(app, asked.source, asked.query_name)
    everyone = [] if registered is None else registered.everyone()
    others = [one for one in asked.customers if one not in set(everyone)]
    if not 0 < len(others) <= ASKED:
        return {}
    there = Register(ledger_of(app)).customers(asked.source, asked.query_name, among=others)
    unknown = {one: meant(one, everyone) for one in others if one not in there}
    if unknown and registered is not None:
        raise ValueError(_unknown(registered.name, unknown, everyone))
    return unknown


def _unknown(dataset: str, unknown: Mapping[str, str], known: Sequence[str]) -> str:
    names = ", ".join(f"{name!r}{close}" for name, close in list(unknown.items())[:NAMED])
    more = f" and {len(unknown) - NAMED:,} more" if len(unknown) > NAMED else ""
    which = "customer" if len(unknown) == 1 else "customers"
    some = ", ".join(known[:NAMED]) + (", …" if len(known) > NAMED else "") if known else "none"
    fix = "add new customers to customers= of the dataset first"
    return f"unknown {which} {names}{more} of {dataset}; known: {some}; {fix}"


def written(app: Operated, sweep_id: int, /) -> Sweep:
    """One that is there."""
    found = ledger_of(app).sweeps.get(sweep_id)
    assert found is not None
    return of_stored(found)


def steps(app: Operated, sweep_id: int, /) -> Iterator[Applied]:
    """Queue what was picked, step by step, until all are queued, or one has to wait for workers."""
    from ...partitions.control.plane import Control  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    control = Control(ledger_of(app), terms_of(app))
    while True:
        step = control.step(sweep_id)
        yield Applied({}, {}, written(app, sweep_id))
        if step.wait or step.sweep.state != "running":
            return


def listed(app: Operated, /, *, limit: int, acts: Collection[str] = ("backfill",)) -> list[Sweep]:
    """The newest first."""
    return [of_stored(one) for one in ledger_of(app).sweeps.list(acts=tuple(acts), limit=limit)]


def count_backfills(app: Operated, acts: Collection[str], /) -> int:
    """Return the number of these sweeps, counted up to one more than MOST_COUNTED."""
    return count_sweeps(ledger_of(app), acts)


def reported(app: Operated, sweep_id: int, /) -> BackfillReport | None:
    """One of them; None: there is none of that number. NotAllowed: it is over dead letters."""
    from ...partitions.queries import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    ledger = ledger_of(app)
    stored = ledger.sweeps.get(sweep_id)
    if stored is None:
        return None
    if stored.act not in PARTITIONED:
        raise NotAllowed(f"sweep {sweep_id} is for dead letters; run `redrive sweeps show {sweep_id}`")
    now = ledger.now()
    register, sweep = Register(ledger), of_stored(stored)
    progress = register.progress(sweep_id)
    assert progress is not None
    reasons: Counter[str] = Counter()
    if progress.rejected:
        for source, query in progress.datasets:
            reasons.update(register.reasons(source=source, query_name=query, sweep_id=sweep_id))
    of = {source for source, _ in progress.datasets}
    paused = [one for one in register.sources() if one.paused and one.source in of] if sweep.state == "running" else []
    return BackfillReport(sweep, progress, _left(sweep, progress, now), dict(reasons.most_common()), now, tuple(paused))


def _left(sweep: Sweep, progress: Progress, now: datetime) -> timedelta | None:
    """By how many have ended since it began: what was skipped took no time."""
    ended = progress.ok + progress.failed
    if not progress.untouched and not progress.active:
        return None  # what is left waits for its next attempt, which no pace tells
    open_ = sweep.total - sweep.skipped - ended
    if sweep.state != "running" or ended < TELLING or open_ <= 0:
        return None
    return open_ * ((now - sweep.created_at) / ended)
