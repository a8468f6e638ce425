"""Overview: what an operator sees first. Is anything wrong, since when, is it growing; at a cost that does not grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...core.text import pluralise
from ...journal.redaction import redact_text
from ..defaults import QUIET
from ..health import overview_rules
from ..health.finding import Severity
from ..health.overview_rules import GRACE, Busy, Trouble
from ..health.presence import nobody
from ..partitions.overview import COUNTED, DatasetLine, dataset_lines, partitioned
from .job_types import KindLine
from .trend import HOURS, trend

if TYPE_CHECKING:
    from ...ledger.jobs.workers import Worker
    from ...ledger.ledger import Ledger
    from ...ledger.model import Tally
    from ...ledger.queries.overview import LeasedJob

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HELD = 500
"""Running jobs that are looked at to see whether a worker has a free thread."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Where events come from."""

    name: str
    received_at: datetime
    """When the last one came."""
    lag: float | None
    """Seconds from when it happened to when it came; None: it does not say."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole ledger at one moment."""

    url: str
    now: datetime
    """By the database's clock."""
    alive: int
    """Workers."""
    seen_at: datetime | None
    """When any worker was last seen."""
    kinds: tuple[KindLine, ...]
    """Those with something wrong first."""
    sources: tuple[SourceLine, ...]
    datasets: tuple[DatasetLine, ...]
    """Of partitions; those with something wrong first."""
    extracting: int
    """Partitions that are being extracted or judged."""
    findings: tuple[Trouble, ...]
    sentence: str
    """The balance in one line."""

    @property
    def severity(self) -> Severity | None:
        """The highest severity; None: no problem was found."""
        return min((one.severity for one in self.findings), default=None)  # critical before warning, by their letters

    @property
    def says(self) -> str:
        """Workers and running work in a sentence, without the full stop."""
        if self.alive:
            running = sum(kind.running for kind in self.kinds)
            busy = [pluralise(running, "job")] if running else []
            busy += [pluralise(self.extracting, "partition")] if self.extracting else []
            online = f"{pluralise(self.alive, 'worker')} online; {' and '.join(busy) or 'nothing'} running"
            if self.findings:
                return online
            dead = sum(kind.dead for kind in self.kinds)
            given_up = sum(line.terminal for line in self.datasets)
            waiting = [pluralise(dead, "dead letter")] if dead else []
            waiting += [pluralise(given_up, "given-up partition")] if given_up else []
            if waiting:  # `redrive doctor` counts them as a problem
                return f"No new problems; {' and '.join(waiting)} waiting for a decision. {online}"
            return f"No problems found. {online}"
        return nobody(self.seen_at, self.now)


def overview(ledger: Ledger, /, *, quiet: float = QUIET, busy: bool = True) -> Overview:
    """How it stands now. Reads counts that are kept and ends of indexes, never the jobs themselves.

    Args:
        ledger: To read from.
        quiet: Seconds without a heartbeat after which a worker is offline.
        busy: Also read whether all threads are busy, if jobs are late.
    """
    from ...ledger.jobs import workers  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ...ledger.queries import overview as stored  # noqa: PLC0415  # the same
    from ...ledger.stats import counters, failures  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ...ledger.stats.failure_groups import slot_of  # noqa: PLC0415  # the same
    from ...messages.queries import latest_by_source  # noqa: PLC0415  # the same

    now = ledger.now()
    slot = slot_of(now)
    with ledger.reading() as connection:
        tallies = counters.counts(connection)
        waits = stored.queues(connection, [kind for kind, tally in tallies.items() if tally.ready])
        failed = failures.hours_by_kind(connection, sorted(tallies), slot, HOURS)
        blocked, parked, firsts = failures.by_kind(connection, now - DAY)
        seen = workers.list_workers(connection)
        stuck = stored.read_stuck(
            connection, expired_before=now - timedelta(seconds=GRACE), given_up_since=now - HOUR, most=COUNTED
        )
        sources = latest_by_source(connection)
        data = partitioned(connection, now, timedelta(seconds=GRACE))
        datasets = dataset_lines(connection, now)
        due = now - timedelta(seconds=GRACE)
        late = [kind for kind, one in waits.items() if one.oldest_due is not None and one.oldest_due <= due]
        held = stored.leased_jobs(connection, HELD) if late and busy else []
    alive = [one for one in seen if one.ended_at is None and one.seen_at >= now - timedelta(seconds=quiet)]
    registered = {kind for one in alive for kind in one.info.get("kinds", ())}
    lines = []
    for name in sorted(tallies.keys() | failed.keys()):
        wait, (why, since) = waits.get(name), parked.get(name, (None, None))
        first = None if wait is None else wait.oldest_due
        counted = failed.get(name, [])
        tally = tallies.get(name)
        lines.append(
            KindLine(
                name=name,
                waiting=0 if tally is None else tally.ready,
                due_since=first if first is not None and first <= now else None,
                next_due=first if first is not None and first > now else None,
                running=0 if tally is None else tally.leased,
                retry_wait=0 if wait is None else min(wait.tried, stored.MAX_COUNTED_RETRIES),
                retry_more=wait is not None and wait.tried > stored.MAX_COUNTED_RETRIES,
                dead=0 if tally is None else tally.dead,
                blocked=blocked.get(name, 0),
                failed=trend([(one.first, one.last, one.tries) for one in counted], slot, first=firsts.get(name)),
                died=trend([(one.first, one.last, one.died) for one in counted], slot, first=firsts.get(name)),
                parked=why,
                parked_since=since,
                workers=sum(name in one.info.get("kinds", (name,)) for one in alive),
                done=0 if tally is None else tally.done + tally.pruned,
                submitted=0 if tally is None else tally.submitted,
            )
        )
    last = max((one.seen_at for one in seen), default=None)
    facts = overview_rules.Facts(
        now,
        len(alive),
        last,
        tuple(lines),
        stuck.leases,
        all("kinds" in one.info for one in alive),
        registered,
        data.late,
        data.paused,
        datasets,
        failing(alive),
        quiet,
        _busy(late, alive, held),
        stuck.items,
    )
    found = tuple(overview_rules.found(facts))
    wrong = {one.kind for one in found if one.kind is not None}
    lines.sort(key=lambda line: (line.name not in wrong, not (line.failed.hour or line.dead), line.name))
    return Overview(
        url=redact_text(ledger.url), now=now, alive=len(alive), seen_at=last, kinds=tuple(lines),
        sources=tuple(SourceLine(one.source, one.received_at, _lag(one.at, one.received_at)) for one in sources),
        datasets=datasets, extracting=data.running, findings=found, sentence=_sentence(tallies),
    )  # fmt: skip


def failing(alive: Iterable[Worker], /) -> dict[str, tuple[str, list[str]]]:
    """What living workers cannot do beside jobs, such as to read a source: the error, and the workers."""
    found: dict[str, tuple[str, list[str]]] = {}
    for one in alive:
        for chore, why in one.info.get("failing", {}).items():
            found.setdefault(chore, (why, []))[1].append(one.name)
    return found


def _busy(kinds: Iterable[str], alive: Sequence[Worker], held: Sequence[LeasedJob]) -> dict[str, Busy]:
    """Job types whose online workers all run as many jobs as they have threads."""
    started: dict[str, list[datetime]] = {}
    for one in held:
        if one.started_at is not None:
            started.setdefault(one.worker, []).append(one.started_at)
    busy: dict[str, Busy] = {}
    for kind in kinds:
        takes = [one for one in alive if kind in one.info.get("kinds", (kind,))]
        full = all(one.info.get("threads") and len(started.get(one.name, ())) >= one.info["threads"] for one in takes)
        if takes and full:
            threads = sum(one.info["threads"] for one in takes)
            busy[kind] = Busy(threads, min(at for one in takes for at in started[one.name]))
    return busy


def _lag(at: datetime | None, received_at: datetime) -> float | None:
    return None if at is None else max(0.0, (received_at - at).total_seconds())


def _sentence(tallies: Mapping[str, Tally]) -> str:
    def of(*names: str) -> int:
        return sum(getattr(tally, name) for tally in tallies.values() for name in names)

    parts = {"done": of("done", "pruned"), "queued": of("ready"), "running": of("leased"), "dead": of("dead")}
    parts["discarded or replayed"] = of("dropped")
    return f"{of('submitted'):,} submitted = " + " + ".join(f"{count:,} {name}" for name, count in parts.items())
