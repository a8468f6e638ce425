"""Trouble: what is wrong, by what an overview shows. Pure; `redrive doctor` looks further, and reads every row for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...core.text import format_duration, pluralise
from ..defaults import QUIET
from ..overview.job_types import KindLine
from ..overview.trend import MANY, QUIET_SLOTS, Trend
from ..partitions.overview import COUNTED, DatasetLine, PausedSource
from .finding import Finding

if TYPE_CHECKING:
    from ...ledger.queries.overview import CountSince

GRACE = 60.0
"""Seconds for which overdue jobs and leases are no problem: workers look now and then."""
UNREAD = "check the server, and its address and credentials in the app"


@dataclass(frozen=True, slots=True)
class Busy:
    """Workers that take a job type and have no free thread."""

    threads: int
    longest_since: datetime
    """Start of the job that has run for longest."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is looked at."""

    now: datetime
    alive: int
    seen_at: datetime | None
    kinds: tuple[KindLine, ...]
    expired: CountSince
    """Leases that ran out a while ago."""
    all_say: bool
    """Every living worker says which kinds it takes."""
    registered: Set[str]
    late: CountSince
    """Partitions that are queued, and were due a while ago."""
    paused: tuple[PausedSource, ...]
    datasets: tuple[DatasetLine, ...] = ()
    failing: Mapping[str, tuple[str, list[str]]] = field(default_factory=dict)
    """What living workers cannot do beside jobs, such as to read a source: the error, and the workers."""
    quiet: float = QUIET
    """Seconds without a heartbeat until a worker is offline."""
    busy: Mapping[str, Busy] = field(default_factory=dict)
    """Job types whose online workers have no free thread."""
    items: Mapping[str, int] = field(default_factory=dict)
    """Batch items that were given up in the last hour, by batch, the most first; at most 1,000 are counted."""


@dataclass(frozen=True, slots=True)
class Trouble(Finding):
    """Something that is wrong."""

    kind: str | None = None
    """With which, where it is one."""


def found(facts: Facts, /) -> list[Trouble]:
    """The worst first; of these, what concerns most."""
    everything = [*_nobody(facts), *_leases(facts), *_sources(facts), *_rejected(facts), *_given_up(facts)]
    for line in facts.kinds:
        everything += [*_parked(line), *_late(facts, line), *_failing(line)]
    return sorted(everything, key=lambda one: (one.severity, -one.count))  # critical before warning


def _nobody(facts: Facts) -> Iterator[Trouble]:
    wait = max(GRACE, facts.quiet)
    due = [line for line in facts.kinds if line.due_since is not None and _age(facts, line.due_since) >= wait]
    if facts.alive or not (due or facts.late.many):
        return
    waiting, parts = sum(line.waiting for line in due), facts.late.many
    last = "none seen so far" if facts.seen_at is None else f"last seen {_span(facts, facts.seen_at)} ago"
    jobs = f"{pluralise(waiting, 'job')} ({_named(due)})" if due else ""
    extractions = pluralise(parts, "partition") if parts else ""
    says = f"Workers: none online ({last}), but {' and '.join(filter(None, (jobs, extractions)))} queued"
    moments = [*(line.due_since for line in due), facts.late.since]
    since = min(one for one in moments if one is not None) if facts.seen_at is None else facts.seen_at
    yield Trouble("no workers", "critical", says, waiting + parts, since, "redrive work module:app")


def _leases(facts: Facts) -> Iterator[Trouble]:
    many = facts.expired.many
    if many:
        says = f"Leases: {many:,} expired and not recovered"
        yield Trouble("dangling leases", "critical", says, many, facts.expired.since, "redrive ledger reap")


def _sources(facts: Facts) -> Iterator[Trouble]:
    for chore, (why, names) in facts.failing.items():
        says = f"Workers: {pluralise(len(names), 'worker')} cannot {chore} ({names[0]}: {why})"
        name = "source failing" if chore.startswith("read ") else "task failing"
        yield Trouble(name, "critical", says, len(names), None, UNREAD, False)
    for one in facts.paused:
        mend = f'redrive state unpause {shlex.quote(one.name)} --whole-source --because "..."'
        yield Trouble("source paused", "warning", f"Source {one.name}: paused {one.why}", 1, None, mend)


def _rejected(facts: Facts) -> Iterator[Trouble]:
    for one in facts.datasets:
        if one.lately >= MANY:
            says = f"{one.name}: {one.lately:,}{'+' if one.lately >= COUNTED else ''} partitions rejected in the last hour"
            says += f"; {one.wrong:,} failed or rejected in total" if one.wrong > one.lately else ""
            mend = f"redrive failures --kind {shlex.quote(one.name)}"
            yield Trouble("partitions failing", "warning", says, one.lately, None, mend, kind=one.name)


def _given_up(facts: Facts) -> Iterator[Trouble]:
    count = sum(facts.items.values())
    if count >= MANY:
        batches = ", ".join(f"{each:,} {batch}" for batch, each in list(facts.items.items())[:3])
        batches += ", …" if len(facts.items) > 3 else ""
        says = f"Batch items: {count:,}{'+' if count >= COUNTED else ''} given up in the last hour ({batches})"
        says += "; check the items and the receiving service"
        yield Trouble("items given up", "warning", says, count, None, "redrive batch giveups --since 1h")


def _parked(line: KindLine) -> Iterator[Trouble]:
    if line.parked is None:
        return
    says = (
        f"{line.name}: paused after an outage, {pluralise(line.waiting, 'job')} queued ({line.parked}); "
        "single jobs probe the service, and the first success resumes it"
    )
    mend = "restore the service that these jobs call"
    yield Trouble("parked", "critical", says, line.waiting, line.parked_since, mend, False, kind=line.name)


def _late(facts: Facts, line: KindLine) -> Iterator[Trouble]:
    if not facts.alive or line.parked is not None or line.due_since is None or _age(facts, line.due_since) < GRACE:
        return
    if facts.all_say and line.name not in facts.registered:
        says = f"{line.name}: no online worker has registered this job type; {pluralise(line.waiting, 'job')} kept and not run"
        mend = "start a worker whose app registers this job type, or restore the old name of the command"
        yield Trouble("unregistered", "warning", says, line.waiting, line.due_since, mend, False, kind=line.name)
        return
    says = f"{line.name}: late; the oldest of {pluralise(line.waiting, 'queued job')} was due {_span(facts, line.due_since)} ago"
    mend, busy = "redrive work module:app", facts.busy.get(line.name)
    if busy is not None:
        says += f"; {_all_busy(busy.threads)}, and the longest job has run for {_span(facts, busy.longest_since)}"
        mend = "redrive workers list"
    yield Trouble("late", "warning", says, line.waiting, line.due_since, mend, kind=line.name)


def _all_busy(threads: int) -> str:
    return "the only worker thread is busy" if threads == 1 else f"all {threads:,} worker threads are busy"


def _failing(line: KindLine) -> Iterator[Trouble]:
    if not (line.dead or line.retry_wait):
        return  # it is over: nothing of it is left
    mend = f"redrive failures --kind {shlex.quote(line.name)}"
    if line.died.many and line.dead:
        new = pluralise(line.died.hour, "new dead letter")
        says = f"{line.name}: {new} {_trend(line.died)}; {line.dead:,} waiting for a decision"
        yield Trouble("dead letters growing", "warning", says, line.died.hour, line.died.since, mend, about=True, kind=line.name)
    elif line.failed.many:
        says = f"{line.name}: {pluralise(line.failed.hour, 'failed attempt')} {_trend(line.failed)}"
        yield Trouble("failing", "warning", says, line.failed.hour, line.failed.since, mend, about=True, kind=line.name)


def _trend(trend: Trend) -> str:
    direction = "rising" if trend.growing else f"none in the last {QUIET_SLOTS * 10} minutes"
    return f"in the last hour (average before: {trend.before:.3g}/h), {direction}"


def _age(facts: Facts, moment: datetime) -> float:
    return (facts.now - moment) / timedelta(seconds=1)


def _span(facts: Facts, moment: datetime) -> str:
    return format_duration(round(_age(facts, moment)))


def _named(lines: list[KindLine]) -> str:
    most = sorted(lines, key=lambda line: -line.waiting)
    return ", ".join(f"{line.waiting:,} {line.name}" for line in most[:3]) + (", …" if len(most) > 3 else "")
