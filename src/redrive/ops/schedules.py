"""Schedules: next runs, last runs and missed runs of commands and datasets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from ..core.text import pluralise
from ..ledger.model import READY, display_state
from .target.target import ledger_of

if TYPE_CHECKING:
    from ..commands.cron import Cron
    from ..ledger.queries.overview import ScheduledJob
    from ..partitions.store.schedule_runs import Fired
    from .target.target import Operated

LOOKED_AT = 10
"""Runs of each command, the newest."""
MOST_MISSED = 100
"""Missed runs that are counted."""
GRACE = timedelta(seconds=10)
"""A worker starts the run of a dataset within this time. A later one is late."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule of a command or of a dataset. Immutable."""

    kind: str
    """Job type, or name of the dataset such as `crm/orders`."""
    line: str | None
    """The five fields of cron, and the time zone."""
    next_at: datetime | None
    """Next run. None: no worker has stored it, because none that has this command is online."""
    late_since: datetime | None
    """When the oldest run that has not started was due. None: no run is late."""
    last_at: datetime | None
    """When the last run was due."""
    last_state: str | None
    """State of that run: of its job, or of the bulk operation of a dataset."""
    last_job: int | None
    """Id of its job. None for a dataset."""
    last_ended: datetime | None
    error: str | None
    missed: int
    """Runs that are due and were not started. A command makes up for all of them with one run, a
    dataset with one each."""
    of: Literal["command", "dataset"] = "command"
    source: str | None = None
    query: str | None = None
    """Source and query of a dataset."""
    last_sweep: int | None = None
    """Id of the last run of a dataset, a bulk operation over its partitions."""


def schedules(app: Operated, /) -> list[Schedule]:
    """Return all schedules by name. Those of commands are known by their runs, which are jobs."""
    from ..ledger.queries import overview as gauges  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ..ledger.stats import counters  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    ledger = ledger_of(app)
    now = ledger.now()
    with ledger.reading() as connection:
        found = gauges.scheduled_jobs(connection, sorted(counters.counts(connection)), LOOKED_AT)
    made = [_schedule(kind, firings, now) for kind, firings in found.items()]
    return sorted([*made, *_of_datasets(app, now)], key=lambda one: one.kind)


def _of_datasets(app: Operated, now: datetime) -> list[Schedule]:
    """Schedules of the app's datasets, and of those that only the ledger knows."""
    from ..partitions.queries import Register  # noqa: PLC0415  # the same
    from .partitions.datasets import cron_from, extractions  # noqa: PLC0415

    stored = Register(ledger_of(app)).schedules()
    crons = {key: cron_from(one.cron) for key, one in stored.items()}
    crons |= {one.terms.dataset: one.cron for one in extractions(app)}
    found = {key: cron for key, cron in crons.items() if cron is not None}
    return [of_dataset(*key, cron, stored.get(key), now) for key, cron in found.items()]


def of_dataset(
    source: str,
    query: str,
    cron: Cron,
    stored: Fired | None,
    now: datetime,
    /,
) -> Schedule:
    """The schedule of one dataset. Pure."""
    from ..partitions.work.tasks import due  # noqa: PLC0415  # the same
    from .partitions.datasets import label  # noqa: PLC0415

    waiting = [] if stored is None else due(cron, stored.fired_at, now - GRACE, most=MOST_MISSED)
    last = None if stored is None else stored.last
    error = None
    if last is not None and last.failed:
        error = f"{last.failed:,} of {pluralise(last.total, 'partition')} of {last.day} failed"
    return Schedule(
        kind=label(source, query),
        line=str(cron),
        next_at=cron.after(now),
        late_since=waiting[0] if waiting else None,
        last_at=None if stored is None or last is None else stored.fired_at,
        last_state=None if last is None else last.state,
        last_job=None,
        last_ended=None if last is None else last.ended_at,
        error=error,
        missed=len(waiting),
        of="dataset",
        source=source,
        query=query,
        last_sweep=None if last is None else last.sweep_id,
    )


def _schedule(kind: str, firings: list[ScheduledJob], now: datetime) -> Schedule:
    newest = firings[0]
    line = _line(newest)
    ahead = [one for one in firings if one.due_at > now and one.state == READY]
    waits = [one for one in firings if one.due_at <= now and one.state == READY]
    come = [one for one in firings if one.due_at <= now]
    last = come[0] if come else None
    state = None if last is None else display_state(last.state, started=last.started_at is not None)
    return Schedule(
        kind=kind, line=line, next_at=ahead[-1].due_at if ahead else None,
        late_since=waits[-1].due_at if waits else None, last_at=None if last is None else last.due_at, last_state=state,
        last_job=None if last is None else last.id, last_ended=None if last is None else last.ended_at,
        error=None if last is None else last.error, missed=_missed(line, newest.due_at, now),
    )  # fmt: skip


def _line(firing: ScheduledJob) -> str | None:
    from ..commands.spec import CRON_HEADER  # noqa: PLC0415  # brings SQLAlchemy

    found = json.loads(firing.headers).get(CRON_HEADER) if firing.headers else None
    return found if isinstance(found, str) else None


def _missed(line: str | None, written: datetime, now: datetime) -> int:
    """Moments after the last one that was written down, up to now."""
    from .partitions.datasets import cron_from  # noqa: PLC0415  # likewise

    cron = None if line is None or written > now else cron_from(line)
    if cron is None:
        return 0
    missed, moment = 0, written
    while missed < MOST_MISSED and (moment := cron.after(moment)) <= now:
        missed += 1
    return missed
