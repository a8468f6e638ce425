"""Schedules: next runs, last runs and missed runs of commands and datasets."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from ...commands.cron import Cron
from ...commands.spec import CRON_HEADER
from ...core.text import pluralise
from ...ledger.jobs.pauses import read_pauses
from ...ledger.jobs.schedule_runs import UNTIL_RESUMED
from ...ledger.model import READY, display_state
from ...ledger.queries import overview
from ...ledger.queries.overview import ScheduledJob
from ...ledger.stats import counters
from ...partitions.queries import PartitionQueries
from ...partitions.store.queries import StoredSchedule
from ...partitions.work.runner import due_times
from ..controls.model import describe_pause
from ..partitions.datasets import label, parse_cron
from ..project.target import Operated, extractions, ledger_of

MAX_RUNS = 10
"""Newest runs of each command that are read."""
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
    paused: str | None = None
    """Who paused it by hand, or the app, until when and why. None: it is not paused."""


def schedules(app: Operated, /) -> list[Schedule]:
    """Return all schedules by name. Those of commands are known by their runs, which are jobs."""
    ledger = ledger_of(app)
    now = ledger.now()
    with ledger.reading() as connection:
        pauses = read_pauses(connection, now)
        runs = overview.scheduled_jobs(connection, sorted(counters.counts(connection)), MAX_RUNS)
    of_commands = [_of_command(kind, firings, now) for kind, firings in runs.items()]
    lines = [
        replace(line, paused=None if pause is None else describe_pause(pause))
        for line in (*of_commands, *_of_datasets(app, now))
        for pause in [pauses.get("schedule", line.kind)]
    ]
    return sorted(lines, key=lambda schedule: schedule.kind)


def _of_datasets(app: Operated, now: datetime) -> list[Schedule]:
    """Schedules of the app's datasets, and of those that only the ledger knows."""
    stored = PartitionQueries(ledger_of(app)).schedules()
    crons = {dataset: parse_cron(fired.cron) for dataset, fired in stored.items()}
    crons |= {extraction.limits.dataset: extraction.cron for extraction in extractions(app)}
    return [
        of_dataset(*dataset, cron, stored.get(dataset), now)
        for dataset, cron in crons.items()
        if cron is not None
    ]


def of_dataset(
    source: str, query: str, cron: Cron, stored: StoredSchedule | None, now: datetime, /
) -> Schedule:
    """Return the schedule of one dataset. Pure."""
    waiting = (
        [] if stored is None else due_times(cron, stored.fired_at, now - GRACE, most=MOST_MISSED)
    )
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


def _of_command(kind: str, firings: list[ScheduledJob], now: datetime) -> Schedule:
    """Return the schedule of one command, from its newest runs. The newest is first."""
    newest = firings[0]
    line = _line(newest)
    due = [firing for firing in firings if firing.due_at <= now]
    ahead = [firing for firing in firings if firing.due_at > now and firing.state == READY]
    waiting = [firing for firing in due if firing.state == READY]
    last = due[0] if due else None
    return Schedule(
        kind=kind,
        line=line,
        next_at=ahead[-1].due_at if ahead and ahead[-1].due_at < UNTIL_RESUMED else None,
        late_since=waiting[-1].due_at if waiting else None,
        last_at=None if last is None else last.due_at,
        last_state=None
        if last is None
        else display_state(last.state, started=last.started_at is not None),
        last_job=None if last is None else last.id,
        last_ended=None if last is None else last.ended_at,
        error=None if last is None else last.error,
        missed=_count_missed(line, newest.due_at, now),
    )


def _line(firing: ScheduledJob) -> str | None:
    line = json.loads(firing.headers).get(CRON_HEADER) if firing.headers else None
    return line if isinstance(line, str) else None


def _count_missed(line: str | None, stored_until: datetime, now: datetime) -> int:
    """Count the runs after the last stored one, up to now."""
    cron = None if line is None or stored_until > now else parse_cron(line)
    if cron is None:
        return 0
    missed, time = 0, stored_until
    while missed < MOST_MISSED and (time := cron.after(time)) <= now:
        missed += 1
    return missed
