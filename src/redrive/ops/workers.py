"""Workers: who is there, who has gone without a word, and what each has in its hands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from .defaults import QUIET
from .health.presence import nobody

if TYPE_CHECKING:
    from ..ledger.jobs.workers import Worker
    from ..ledger.ledger import Ledger

MOST = 500
"""Jobs in hands that are looked at, and partitions."""
Presence: TypeAlias = Literal["alive", "silent", "lost", "ended"]
"""Silent: it gives no sign of life. Lost: its process is gone, and did not end in order: killed, or crashed."""
ORDER: tuple[Presence, ...] = ("alive", "silent", "lost", "ended")


@dataclass(frozen=True, slots=True)
class InHand:
    """A job that a worker has."""

    id: int
    kind: str
    key: str
    attempt: int
    started_at: datetime | None
    """None: it was only taken, and waits in the worker."""
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class InExtraction:
    """A partition that a worker extracts or judges."""

    partition: str
    attempt: int
    started_at: datetime


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """A worker, as it was last seen."""

    name: str
    presence: Presence
    host: str | None
    pid: int | None
    version: str | None
    """Of redrive."""
    state: str | None
    """As it last said: working, draining."""
    threads: int | None
    kinds: tuple[str, ...]
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None
    jobs: tuple[InHand, ...]
    partitions: tuple[InExtraction, ...] = ()

    @property
    def hands(self) -> int:
        """How many jobs and partitions it has."""
        return len(self.jobs) + len(self.partitions)

    @property
    def longest_since(self) -> datetime | None:
        """When it began with what it has had for longest; None: it runs nothing."""
        begun = [job.started_at for job in self.jobs if job.started_at is not None]
        return min([*begun, *(one.started_at for one in self.partitions)], default=None)


@dataclass(frozen=True, slots=True)
class Workers:
    """All workers that are remembered: for a week."""

    now: datetime
    quiet: float
    """Seconds after which one counts as silent."""
    workers: tuple[WorkerLine, ...]
    """Those alive first, then those that went silent, then those that were lost."""

    @property
    def alive(self) -> int:
        """How many are."""
        return sum(one.presence == "alive" for one in self.workers)

    @property
    def nobody(self) -> str:
        """Where none is: since when, in a sentence."""
        return nobody(max((one.seen_at for one in self.workers), default=None), self.now)


def workers(ledger: Ledger, /, *, quiet: float = QUIET) -> Workers:
    """Who works, or did."""
    from ..ledger.jobs import workers as stored  # noqa: PLC0415  # the same
    from ..ledger.queries import overview  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ..partitions.store.overview import held as extracted  # noqa: PLC0415  # the same

    now = ledger.now()
    with ledger.reading() as connection:
        seen = stored.list_workers(connection)
        held = overview.leased_jobs(connection, MOST)
        extracting = extracted(connection, MOST)
    hands: dict[str, list[InHand]] = {}
    for one in held:
        hands.setdefault(one.worker, []).append(InHand(one.id, one.kind, one.key, one.attempts, one.started_at, one.lease_until))
    parts: dict[str, list[InExtraction]] = {}
    for each in extracting:
        parts.setdefault(each.worker, []).append(InExtraction(str(each.partition), each.attempt_no, each.leased_at))
    silent = now - timedelta(seconds=quiet)
    lines = [_line(one, hands.get(one.name, []), parts.get(one.name, []), silent) for one in seen]
    lines.sort(key=lambda one: ORDER.index(one.presence))
    return Workers(now, quiet, tuple(lines))


def _line(one: Worker, jobs: list[InHand], partitions: list[InExtraction], silent: datetime) -> WorkerLine:
    here: Presence = "silent" if one.seen_at < silent else "alive"
    presence: Presence = here if one.ended_at is None else "lost" if one.lost else "ended"
    return WorkerLine(
        name=one.name, presence=presence, host=one.host, pid=one.pid, version=one.info.get("version"),
        state=one.info.get("state"), threads=one.info.get("threads"), kinds=tuple(one.info.get("kinds", ())),
        started_at=one.started_at, seen_at=one.seen_at, ended_at=one.ended_at, jobs=tuple(jobs), partitions=tuple(partitions),
    )  # fmt: skip
