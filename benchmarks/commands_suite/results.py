"""Results and targets of a run."""

from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.interval import Interval
from benchmarks.ledger_suite.targets import NAMES
from benchmarks.target import MeasuredTarget

OURS = "redrive"


class Case(NamedTuple):
    """A library, or Redrive with sync or async commands, on one database."""

    name: str
    database: str


@dataclass
class Results:
    """Figures by case, one per round."""

    rates: dict[Case, list[float]] = field(default_factory=dict)
    """Commands per second."""
    of_20_ms: dict[Case, list[float]] = field(default_factory=dict)
    """Commands of 20 ms per second, for Redrive only."""
    latencies: dict[Case, list[float]] = field(default_factory=dict)
    """Median milliseconds from submit to start."""
    absent: dict[str, str] = field(default_factory=dict)
    fsync: Interval | None = None

    def ratio(self, own: Case, peer: Case) -> Interval | None:
        """Compare the rates of two cases, round by round."""
        ours, theirs = self.rates.get(own), self.rates.get(peer)
        if not ours or not theirs:
            return None
        return Interval.of([rate / peer_rate for rate, peer_rate in zip(ours, theirs, strict=False)])

    def latency(self, case: Case) -> Interval | None:
        latencies = self.latencies.get(case)
        return Interval.of(latencies) if latencies else None


SYNC, ASYNC = "redrive, sync", "redrive, async"


def _peer(own: str, database: str, peer: str, limit: float) -> MeasuredTarget[Results]:
    return MeasuredTarget(
        f"{NAMES[database]}, {own.partition(', ')[2]} commands, vs {peer}",
        "≥",
        limit,
        "×",
        lambda results: results.ratio(Case(own, database), Case(peer, database)),
    )


def _latency(database: str, limit: float) -> MeasuredTarget[Results]:
    return MeasuredTarget(
        f"{NAMES[database]}, from submit to start, p50", "≤", limit, " ms", lambda results: results.latency(Case(OURS, database))
    )


TARGETS = (
    _peer(SYNC, "postgres", "DBOS queue", 10),
    _peer(ASYNC, "postgres", "procrastinate, 10 at once", 10),
    _peer(ASYNC, "postgres", "pgqueuer, batches of 100", 1),
    _peer(SYNC, "sqlite", "huey with fsync", 1),
    _latency("postgres", 10),
    _latency("sqlite", 50),
)
