"""The problems that an overview shows, as pure functions.

`redrive doctor` checks more, and reads every row.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...core.text import format_duration, pluralise
from ...journal.redaction import redact_text
from ...partitions.store.rows import POLICY
from ..context import QUIET
from ..controls.model import PauseLine, resume_command
from ..overview.job_types import KindLine
from ..overview.trend import MIN_REPORTED_COUNT, QUIET_SLOTS, Trend
from ..partitions.overview import MAX_COUNTED, DatasetLine, PausedSource
from ..render import describe_probe
from ..sweeps import PARTITIONED
from ..workers import TASK_VERBS

if TYPE_CHECKING:
    from ...ledger.queries.overview import CountSince, HaltedSweep

Severity: TypeAlias = Literal["warning", "critical"]
"""Critical: work is lost, stopped, or not verifiable. Warning: this will happen unless a person
acts."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem."""

    name: str
    severity: Severity
    says: str
    """`<thing>: <problem>`, without a full stop."""
    count: int
    since: datetime | None
    mend: str
    """The fix: a command, or an instruction where no command helps."""
    is_command: bool = True
    about: bool = False
    """`since` is accurate to ten minutes."""
    subject: str = ""
    """What has the problem, such as a source. Empty: the ledger, or the workers together."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name and subject. They stay the same from check to check, and the counts do not."""
        return self.name, self.subject


@dataclass(frozen=True, slots=True)
class Health:
    """The result of an examination."""

    url: str
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    """Names of the checks."""
    balance: str | None
    """The counts in one line; None if they could not be read."""
    now: datetime | None
    no_worker: str | None = None
    """That no worker is online, and since when; None: at least one is, or the ledger could not be
    read."""

    @property
    def severity(self) -> Severity | None:
        """The highest severity; None: no problem was found."""
        if any(finding.severity == "critical" for finding in self.findings):
            return "critical"
        return "warning" if self.findings else None


GRACE = 60.0
"""Seconds for which overdue jobs and leases are not a problem, because workers check only now and
then."""
CHECK_SERVER = "check the server, and its address and credentials in the app"
FIX_TASK = "fix the cause of the error; the worker retries the task by itself"
CUSTOMERS_FAILED = "CustomersFailed: "
FIX_CUSTOMERS = "fix the function of customers= in the app; workers call it again by themselves"


@dataclass(frozen=True, slots=True)
class Busy:
    """Workers that take a job type and have no free thread."""

    threads: int
    longest_since: datetime
    """Start of the job that has run for longest."""


@dataclass(frozen=True, slots=True)
class OverviewFacts:
    """Everything that the rules read."""

    now: datetime
    alive: int
    seen_at: datetime | None
    kinds: tuple[KindLine, ...]
    expired: CountSince
    """Leases that expired before the grace period."""
    all_report_kinds: bool
    """Every online worker reports its job types."""
    registered: Set[str]
    late: CountSince
    """Queued partitions that were due before the grace period."""
    paused: tuple[PausedSource, ...]
    datasets: tuple[DatasetLine, ...] = ()
    failing: Mapping[str, tuple[str, list[str]]] = field(default_factory=dict)
    """Failing tasks of online workers, such as reading a source: the error, and the workers."""
    quiet: float = QUIET
    """Seconds without a heartbeat until a worker is offline."""
    busy: Mapping[str, Busy] = field(default_factory=dict)
    """Job types whose online workers have no free thread."""
    halted: tuple[HaltedSweep, ...] = ()
    """Bulk operations that stopped and need a decision, newest first."""
    items: Mapping[str, int] = field(default_factory=dict)
    """Batch items that were given up in the last hour, by batch, the largest number first. Counted
    up to 1,000."""
    pauses: tuple[PauseLine, ...] = ()
    """Pauses by hand."""

    @property
    def is_app_paused(self) -> bool:
        """Whether the whole app is paused by hand."""
        return any(pause.scope == "app" for pause in self.pauses)


@dataclass(frozen=True, slots=True)
class OverviewFinding(Finding):
    """A problem that the overview shows."""

    kind: str | None = None
    """Job type or dataset. None: the problem is not about one."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and job type, dataset or other subject."""
        return self.name, self.kind or self.subject


def list_findings(facts: OverviewFacts, /) -> list[OverviewFinding]:
    """Return the problems, critical ones first, then by the number of items."""
    problems = [
        *_no_worker(facts),
        *_leases(facts),
        *_paused_by_hand(facts),
        *_sources(facts),
        *_halted_sweeps(facts),
        *_rejected_partitions(facts),
        *_given_up(facts),
    ]
    for line in facts.kinds:
        problems += [*_parked_job_types(facts, line), *_late(facts, line), *_failing(line)]
    # "critical" sorts before "warning".
    return sorted(problems, key=lambda problem: (problem.severity, -problem.count))


def _no_worker(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    wait = max(GRACE, facts.quiet)
    due = [
        line
        for line in facts.kinds
        if line.due_since is not None and _age(facts, line.due_since) >= wait
    ]
    if facts.alive or not (due or facts.late.many):
        return
    waiting, parts = sum(line.waiting for line in due), facts.late.many
    seen = None if facts.seen_at is None else _span(facts, facts.seen_at)
    last = "none seen so far" if seen is None else f"last seen {seen} ago"
    jobs = f"{pluralise(waiting, 'job')} ({_largest(due)})" if due else ""
    extractions = pluralise(parts, "partition") if parts else ""
    says = (
        f"Workers: none online ({last}), but {' and '.join(filter(None, (jobs, extractions)))} "
        "queued"
    )
    times = [*(line.due_since for line in due), facts.late.since]
    since = min(filter(None, times)) if facts.seen_at is None else facts.seen_at
    yield OverviewFinding(
        "no workers", "critical", says, waiting + parts, since, "redrive work module:app"
    )


def _leases(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    count = facts.expired.many
    if count:
        says = f"Leases: {count:,} expired and not recovered"
        yield OverviewFinding(
            "dangling leases", "critical", says, count, facts.expired.since, "redrive ledger reap"
        )


def _paused_by_hand(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    waiting = {line.name: line.waiting for line in facts.kinds}
    for pause in facts.pauses:
        subject = f"{pause.subject[0].upper()}{pause.subject[1:]}"
        count = sum(waiting.values()) if pause.scope == "app" else waiting.get(pause.name, 0)
        queued = ""
        if pause.scope in ("app", "job type"):
            queued = f"; {pluralise(count, 'job')} queued"
        kind = pause.name if pause.scope == "job type" else None
        fix = resume_command(pause.scope, pause.name)
        yield OverviewFinding(
            "paused by hand",
            "warning",
            f"{subject}: {pause.says}{queued}",
            max(1, count),
            pause.paused_at,
            fix,
            subject=pause.subject,
            kind=kind,
        )


def _sources(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    for task, (error, names) in facts.failing.items():
        verb = TASK_VERBS.get(task, task)
        says = f"Workers: {pluralise(len(names), 'worker')} cannot {verb} ({names[0]}: {error})"
        name, fix = "task failing", FIX_TASK
        if task.startswith("read "):
            name, fix = "source failing", CHECK_SERVER
        elif error.startswith(CUSTOMERS_FAILED):
            says, fix = error.removeprefix(CUSTOMERS_FAILED), FIX_CUSTOMERS
        yield OverviewFinding(name, "critical", says, len(names), None, fix, False, subject=task)
    for source in facts.paused:
        severity, fix, is_command = pause_fix(source.name, source.actor)
        says = f"Source {source.name}: paused {source.why}"
        yield OverviewFinding(
            "source paused", severity, says, 1, None, fix, is_command, subject=source.name
        )


def pause_fix(source: str, actor: str, /) -> tuple[Severity, str, bool]:
    """Return how severe the pause of a source is, the fix, and whether that is a command.

    After an outage the source must be restored, as the service of a paused job type.
    """
    name = shlex.quote(source)
    if actor != POLICY:
        return "warning", f'redrive resume source {name} --because "..."', True
    resume = f'`redrive resume parked {name} --because "..."`'
    return "critical", f"restore the source; to start now, without a probe: {resume}", False


def _halted_sweeps(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    for sweep in facts.halted:
        is_partitions = sweep.act in PARTITIONED
        unit = "partition" if is_partitions else "dead letter"
        says = (
            f"Sweep {sweep.id} ({sweep.act}): halted, "
            f"{redact_text(sweep.reason or 'reason unknown')}; "
            f"{pluralise(sweep.left, unit)} left"
        )
        fix = f"redrive {'backfill status' if is_partitions else 'sweeps show'} {sweep.id}"
        count, since = sweep.left, sweep.halted_at
        yield OverviewFinding(
            "sweep halted", "warning", says, count, since, fix, subject=f"sweep {sweep.id}"
        )


def _rejected_partitions(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    for dataset in facts.datasets:
        if dataset.lately >= MIN_REPORTED_COUNT:
            count = f"{dataset.lately:,}{'+' if dataset.lately >= MAX_COUNTED else ''}"
            says = f"{dataset.name}: {count} partitions rejected in the last hour"
            if dataset.wrong > dataset.lately:
                says += f"; {dataset.wrong:,} failed or rejected in total"
            fix = f"redrive failures --kind {shlex.quote(dataset.name)}"
            yield OverviewFinding(
                "partitions failing", "warning", says, dataset.lately, None, fix, kind=dataset.name
            )


def _given_up(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    count = sum(facts.items.values())
    if count >= MIN_REPORTED_COUNT:
        batches = ", ".join(f"{each:,} {batch}" for batch, each in list(facts.items.items())[:3])
        batches += ", …" if len(facts.items) > 3 else ""
        says = (
            f"Batch items: {count:,}{'+' if count >= MAX_COUNTED else ''} given up in the last "
            f"hour ({batches}); check the items and the receiving service"
        )
        yield OverviewFinding(
            "items given up", "warning", says, count, None, "redrive batch giveups --since 1h"
        )


def _parked_job_types(facts: OverviewFacts, line: KindLine) -> Iterator[OverviewFinding]:
    if line.parked is None:
        return
    says = (
        f"{line.name}: paused after an outage, {pluralise(line.waiting, 'job')} queued "
        f"({line.parked}); "
        "single jobs probe the service, and the first success resumes it"
        f"{describe_probe(line.probe_at, facts.now)}"
    )
    fix = "restore the service that these jobs call"
    yield OverviewFinding(
        "parked", "critical", says, line.waiting, line.parked_since, fix, False, kind=line.name
    )


def _late(facts: OverviewFacts, line: KindLine) -> Iterator[OverviewFinding]:
    if (
        not facts.alive
        or facts.is_app_paused
        or line.parked is not None
        or line.paused is not None
        or line.due_since is None
        or _age(facts, line.due_since) < GRACE
    ):
        return
    if facts.all_report_kinds and line.name not in facts.registered:
        says = (
            f"{line.name}: no online worker has registered this job type; "
            f"{pluralise(line.waiting, 'job')} kept and not run"
        )
        fix = (
            "start a worker whose app registers this job type, or restore the old name of the "
            "command"
        )
        count, since = line.waiting, line.due_since
        yield OverviewFinding(
            "unregistered", "warning", says, count, since, fix, False, kind=line.name
        )
        return
    says = (
        f"{line.name}: late; the oldest of {pluralise(line.waiting, 'queued job')} was due "
        f"{_span(facts, line.due_since)} ago"
    )
    fix, busy = "redrive work module:app", facts.busy.get(line.name)
    if busy is not None:
        says += (
            f"; {_all_busy(busy.threads)}, and the longest job has run for "
            f"{_span(facts, busy.longest_since)}"
        )
        fix = "redrive workers list"
    yield OverviewFinding(
        "late", "warning", says, line.waiting, line.due_since, fix, kind=line.name
    )


def _all_busy(threads: int) -> str:
    single = "the only worker thread is busy"
    return single if threads == 1 else f"all {threads:,} worker threads are busy"


def _failing(line: KindLine) -> Iterator[OverviewFinding]:
    if not (line.dead or line.retry_wait):
        return  # No failed job is left.
    trend, name = line.failed, "failing"
    says = f"{line.name}: {pluralise(trend.hour, 'failed attempt')} {_trend(trend)}"
    if line.died.is_unusual and line.dead:
        trend, name = line.died, "dead letters growing"
        new = pluralise(trend.hour, "new dead letter")
        says = f"{line.name}: {new} {_trend(trend)}; {line.dead:,} waiting for a decision"
    if trend.is_unusual:
        fix, hour = f"redrive failures --kind {shlex.quote(line.name)}", trend.hour
        yield OverviewFinding(
            name, "warning", says, hour, trend.since, fix, about=True, kind=line.name
        )


def _trend(trend: Trend) -> str:
    direction = "rising" if trend.is_growing else f"none in the last {QUIET_SLOTS * 10} minutes"
    return f"in the last hour (average before: {trend.before:.3g}/h), {direction}"


def _age(facts: OverviewFacts, time: datetime) -> float:
    return (facts.now - time) / timedelta(seconds=1)


def _span(facts: OverviewFacts, time: datetime) -> str:
    return format_duration(round(_age(facts, time)))


def _largest(lines: list[KindLine]) -> str:
    largest = sorted(lines, key=lambda line: -line.waiting)
    names = ", ".join(f"{line.waiting:,} {line.name}" for line in largest[:3])
    return names + (", …" if len(largest) > 3 else "")
