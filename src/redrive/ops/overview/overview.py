"""Overview: the problems, since when, and whether they grow.

Its cost does not grow with the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...core.text import pluralise
from ...journal.redaction import redact_text
from ...ledger.jobs import workers
from ...ledger.model import Tally
from ...ledger.queries import overview as stored
from ...ledger.stats import counters, failures
from ...ledger.stats.failure_groups import slot_of
from ...messages.queries import latest_by_source
from ..context import QUIET
from ..controls.model import PauseLine, describe_pause, pause_line
from ..health.overview_rules import (
    GRACE,
    Busy,
    OverviewFacts,
    OverviewFinding,
    Severity,
    list_findings,
)
from ..partitions.overview import MAX_COUNTED, DatasetLine, dataset_lines, read_partition_queue
from ..workers import describe_missing
from .job_types import KindLine
from .trend import HOURS, trend

if TYPE_CHECKING:
    from ...ledger.jobs.workers import WorkerRecord
    from ...ledger.ledger import Ledger
    from ...ledger.queries.overview import LeasedJob

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MAX_NAMED_BATCHES = 3
MAX_RUNNING = 500
"""Running jobs that are read to see whether a worker has a free thread."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A source of events."""

    name: str
    received_at: datetime
    """When the last event was received."""
    lag: float | None
    """Seconds from the time of the last event to its receipt. None: the event has no time."""


@dataclass(frozen=True, slots=True)
class EngineLine:
    """Another engine that runs commands, as a worker has reported it."""

    name: str
    """Name and address, such as `Temporal localhost:7233`."""
    namespace: str
    queue: str
    """Its task queue."""
    open: int
    """Jobs that are queued, scheduled or running there."""
    done: int
    """Ended jobs that it still keeps."""
    failed: int
    cancelled: int
    at: datetime
    """When it was counted."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of a ledger at one time."""

    url: str
    now: datetime
    """Time of the database's clock."""
    alive: int
    """Number of online workers."""
    seen_at: datetime | None
    """Last heartbeat of any worker."""
    kinds: tuple[KindLine, ...]
    """Job types with problems come first."""
    sources: tuple[SourceLine, ...]
    datasets: tuple[DatasetLine, ...]
    """Datasets with problems come first."""
    extracting: int
    """Number of running partitions."""
    findings: tuple[OverviewFinding, ...]
    sentence: str
    """The balance of all jobs in one line."""
    pending_items: Mapping[str, int] = field(default_factory=dict)
    """Rejected batch items that the next call of their sender sends again, by batch. Counted up to
    1,000."""

    pauses: tuple[PauseLine, ...] = ()
    """Pauses by hand: of the app, job types, sources and schedules."""

    engines: tuple[EngineLine, ...] = ()
    """Other engines that run commands. Their dead letters are in the ledger."""

    @property
    def app_pause(self) -> PauseLine | None:
        """The pause of the whole app by hand. None: it is not paused."""
        return next((pause for pause in self.pauses if pause.scope == "app"), None)

    @property
    def severity(self) -> Severity | None:
        """The highest severity; None: no problem was found."""
        return min(
            (finding.severity for finding in self.findings), default=None
        )  # "critical" sorts first.

    @property
    def queued_partitions(self) -> int:
        """Queued partitions of all datasets, counted up to 1,000 for each."""
        return sum(line.queued for line in self.datasets)

    @property
    def pending_items_text(self) -> str:
        """The number of pending batch items in words. Empty: there are none."""
        count = sum(self.pending_items.values())
        if not count:
            return ""
        total = f"{count:,}+ items" if count >= MAX_COUNTED else pluralise(count, "item")
        largest = sorted(self.pending_items.items(), key=lambda pair: (-pair[1], pair[0]))
        batches = ", ".join(f"{each:,} {batch}" for batch, each in largest[:MAX_NAMED_BATCHES])
        batches += ", …" if len(largest) > MAX_NAMED_BATCHES else ""
        return f"{total} rejected and sent again by the next call ({batches})"

    @property
    def says(self) -> str:
        """Workers and running work in a sentence, without the full stop."""
        if self.alive:
            running = sum(kind.running for kind in self.kinds)
            busy = [pluralise(running, "job")] if running else []
            busy += [pluralise(self.extracting, "partition")] if self.extracting else []
            online = (
                f"{pluralise(self.alive, 'worker')} online; {' and '.join(busy) or 'nothing'} "
                "running"
            )
            if self.findings:
                return online
            dead = sum(kind.dead for kind in self.kinds)
            given_up = sum(line.terminal for line in self.datasets)
            known = [f"{pluralise(dead, 'dead letter')} waiting for a decision"] if dead else []
            known += [pluralise(given_up, "given-up partition")] if given_up else []
            rejected = sum(line.refresh_failed for line in self.datasets)
            known += [pluralise(rejected, "rejected newer run")] if rejected else []
            if known:  # `redrive doctor` reports those that wait for a decision as a problem.
                return f"No new problems; {', '.join(known)}. {online}"
            return f"No problems found. {online}"
        return describe_missing(self.seen_at, self.now)


def overview(ledger: Ledger, /, *, quiet: float = QUIET, busy: bool = True) -> Overview:
    """Return the state of a ledger. It reads counters and ends of indexes, never all jobs.

    Args:
        ledger: The ledger.
        quiet: Seconds without a heartbeat after which a worker is offline.
        busy: Also read whether all threads are busy, if jobs are late.
    """
    grace = timedelta(seconds=GRACE)
    with ledger.connections.read.use() as session, session.snapshot() as connection:
        now, tallies = counters.counts_now(session)
        slot = slot_of(now)
        waits = stored.queues(connection, [kind for kind, tally in tallies.items() if tally.ready])
        failed = failures.hours_by_kind(connection, sorted(tallies), slot, HOURS)
        states = stored.read_kind_states(connection, now, now - DAY)
        known_workers = workers.list_workers(connection)
        stuck = stored.read_stuck(
            connection, expired_before=now - grace, given_up_since=now - HOUR, most=MAX_COUNTED
        )
        halted = stored.halted_sweeps(connection) if stuck.has_halted_sweeps else ()
        sources = latest_by_source(connection)
        data = read_partition_queue(connection, now, grace)
        datasets = dataset_lines(connection, now)
        due = {kind: wait.oldest_due for kind, wait in waits.items() if wait.oldest_due is not None}
        late = [kind for kind, since in due.items() if since <= now - grace]
        running = stored.leased_jobs(connection, MAX_RUNNING) if late and busy else []
    silent_before = now - timedelta(seconds=quiet)
    online = [
        each for each in known_workers if each.ended_at is None and each.seen_at >= silent_before
    ]
    seen_at = max((worker.seen_at for worker in known_workers), default=None)
    lines: list[KindLine] = []
    for name in sorted(tallies.keys() | failed.keys()):
        tally, since = tallies.get(name, Tally()), due.get(name)
        queue = waits.get(name, stored.Queue(None, 0))
        reason, parked_since, probe_at = states.parked.get(name, (None, None, None))
        hours, first = failed.get(name, []), states.first_seen.get(name)
        own = states.pauses.own("job type", name)
        line = KindLine(
            name=name,
            waiting=tally.ready,
            due_since=since if since is not None and since <= now else None,
            next_due=since if since is not None and since > now else None,
            running=tally.leased,
            retry_wait=min(queue.tried, stored.MAX_COUNTED_RETRIES),
            retry_more=queue.tried > stored.MAX_COUNTED_RETRIES,
            suspended=min(queue.suspended, stored.MAX_COUNTED_RETRIES),
            cancelled=tally.cancelled,
            dead=tally.dead,
            blocked=states.blocked.get(name, 0),
            failed=trend(
                [(each.first, each.last, each.tries) for each in hours], slot, first=first
            ),
            died=trend([(each.first, each.last, each.died) for each in hours], slot, first=first),
            parked=reason,
            parked_since=parked_since,
            workers=sum(_takes(worker, name) for worker in online),
            done=tally.done + tally.pruned,
            submitted=tally.submitted,
            probe_at=probe_at,
            paused=None if own is None else describe_pause(own),
        )
        lines.append(line)
    pause_lines = tuple(map(pause_line, states.pauses))
    problems = list_findings(
        OverviewFacts(
            now=now,
            alive=len(online),
            seen_at=seen_at,
            kinds=tuple(lines),
            expired=stuck.leases,
            all_report_kinds=all("kinds" in worker.info for worker in online),
            registered={kind for worker in online for kind in worker.info.get("kinds", ())},
            late=data.late,
            paused=data.paused,
            datasets=datasets,
            failing=failing_tasks(online),
            quiet=quiet,
            busy=_busy_kinds(late, online, running),
            halted=halted,
            items=stuck.items,
            pauses=pause_lines,
        )
    )
    troubled = {problem.kind for problem in problems}
    lines.sort(
        key=lambda line: (line.name not in troubled, not (line.failed.hour or line.dead), line.name)
    )
    return Overview(
        url=redact_text(ledger.url),
        now=now,
        alive=len(online),
        seen_at=seen_at,
        kinds=tuple(lines),
        sources=tuple(
            SourceLine(source.source, source.received_at, _lag(source.at, source.received_at))
            for source in sources
        ),
        datasets=datasets,
        extracting=data.running,
        findings=tuple(problems),
        sentence=_balance(tallies),
        pending_items=stuck.pending_items,
        pauses=pause_lines,
        engines=engine_lines(online),
    )


def engine_lines(online: Iterable[WorkerRecord], /) -> tuple[EngineLine, ...]:
    """Return the engines that online workers report, each by its newest report."""
    newest: dict[tuple[str, str, str], EngineLine] = {}
    for worker in online:
        report = worker.info.get("engine")
        if not report:
            continue
        counts, at = report["counts"], datetime.fromisoformat(report["at"])
        line = EngineLine(
            name=report["name"],
            namespace=report["namespace"],
            queue=report["queue"],
            open=counts.get("open", 0),
            done=counts.get("done", 0),
            failed=counts.get("failed", 0),
            cancelled=counts.get("cancelled", 0),
            at=at,
        )
        names = (line.name, line.namespace, line.queue)
        if names not in newest or newest[names].at < line.at:
            newest[names] = line
    return tuple(newest[names] for names in sorted(newest))


def failing_tasks(online: Iterable[WorkerRecord], /) -> dict[str, tuple[str, list[str]]]:
    """Return failing tasks of workers, such as reading a source: the error, and the workers."""
    failing: dict[str, tuple[str, list[str]]] = {}
    for worker in online:
        for task, error in worker.info.get("failing", {}).items():
            failing.setdefault(task, (error, []))[1].append(worker.name)
    return failing


def _takes(worker: WorkerRecord, kind: str) -> bool:
    """Return whether a worker runs this job type. An old worker does not report its job types."""
    return kind in worker.info.get("kinds", (kind,))


def _busy_kinds(
    kinds: Iterable[str], online: Sequence[WorkerRecord], running: Sequence[LeasedJob]
) -> dict[str, Busy]:
    """Return the job types whose online workers all run as many jobs as they have threads."""
    started: dict[str, list[datetime]] = {}
    for job in running:
        if job.started_at is not None:
            started.setdefault(job.worker, []).append(job.started_at)
    busy: dict[str, Busy] = {}
    for kind in kinds:
        workers_of_kind = [worker for worker in online if _takes(worker, kind)]
        threads = [worker.info.get("threads") or 0 for worker in workers_of_kind]
        starts = [started.get(worker.name, []) for worker in workers_of_kind]
        if threads and all(
            0 < count <= len(times) for count, times in zip(threads, starts, strict=True)
        ):
            busy[kind] = Busy(sum(threads), min(min(times) for times in starts))
    return busy


def _lag(at: datetime | None, received_at: datetime) -> float | None:
    return None if at is None else max(0.0, (received_at - at).total_seconds())


def _balance(tallies: Mapping[str, Tally]) -> str:
    def total(*names: str) -> int:
        return sum(getattr(tally, name) for tally in tallies.values() for name in names)

    parts = {
        "done": total("done", "pruned"),
        "queued": total("ready"),
        "running": total("leased"),
        "dead": total("dead"),
        "discarded or replayed": total("dropped"),
    }
    if cancelled := total("cancelled"):
        parts["cancelled"] = cancelled
    counts = " + ".join(f"{count:,} {name}" for name, count in parts.items())
    return f"{total('submitted'):,} submitted = {counts}"
