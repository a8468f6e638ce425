"""What a run found, and what it is to be judged by."""

from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.durable.targets import NAMES
from benchmarks.interval import Interval
from benchmarks.target import Promise

OURS = "redrive"


class Case(NamedTuple):
    """Who does it, on which database; plain or async where it is ours."""

    name: str
    database: str


@dataclass
class Results:
    """By case: one figure for each round, interleaved."""

    rates: dict[Case, list[float]] = field(default_factory=dict)
    """Commands in a second."""
    of_20_ms: dict[Case, list[float]] = field(default_factory=dict)
    """Commands of 20 ms in a second. Ours only."""
    latencies: dict[Case, list[float]] = field(default_factory=dict)
    """Milliseconds from submit to start, the median of a run."""
    absent: dict[str, str] = field(default_factory=dict)
    fsync: Interval | None = None

    def ahead(self, own: Case, peer: Case) -> Interval | None:
        """Our rate to a peer's, round by round where both were measured in as many."""
        ours, theirs = self.rates.get(own), self.rates.get(peer)
        if not ours or not theirs:
            return None
        return Interval.of([one / other for one, other in zip(ours, theirs, strict=False)])

    def latency(self, case: Case) -> Interval | None:
        found = self.latencies.get(case)
        return Interval.of(found) if found else None


PLAIN, ASYNC = "redrive, plain", "redrive, async"


def _ahead(own: str, database: str, peer: str, limit: float) -> Promise[Results]:
    return Promise(
        f"{NAMES[database]}, {own.partition(', ')[2]} commands, to {peer}",
        "≥",
        limit,
        "×",
        lambda results: results.ahead(Case(own, database), Case(peer, database)),
    )


def _soon(database: str, limit: float) -> Promise[Results]:
    return Promise(
        f"{NAMES[database]}, from submit to start, p50", "≤", limit, " ms", lambda results: results.latency(Case(OURS, database))
    )


TARGETS = (
    _ahead(PLAIN, "postgres", "DBOS queue", 10),
    _ahead(ASYNC, "postgres", "procrastinate, 10 at once", 10),
    _ahead(ASYNC, "postgres", "pgqueuer, batches of 100", 1),
    _ahead(PLAIN, "sqlite", "huey with fsync", 1),
    _soon("postgres", 10),
    _soon("sqlite", 50),
)
