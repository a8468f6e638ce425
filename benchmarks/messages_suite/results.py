"""Results and targets of a run."""

from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from benchmarks.interval import Interval
from benchmarks.ledger_suite.results import Pair
from benchmarks.ledger_suite.targets import NAMES
from benchmarks.target import MeasuredTarget

BATCHES = (100, 1)
MAX_GROWTH = 24.0
"""Maximum growth of a process in MiB. It allows for caches and fragmentation."""


class Peer(NamedTuple):
    """A library with its settings."""

    name: str
    library: str
    batch: int
    messages: int


PEERS = (
    Peer("faststream, 100 at a time", "faststream", 100, 3000),
    Peer("taskiq-redis streams, 100 at a time", "taskiq", 100, 3000),
    Peer("dramatiq, 8 threads", "dramatiq", 100, 3000),
    Peer("arq, 100 at a time", "arq", 100, 2000),
    Peer("celery, acks_late, solo", "celery", 100, 1500),
    Peer("faststream, one at a time", "faststream", 1, 1500),
)


@dataclass
class Results:
    """Figures by database and batch size."""

    own: dict[tuple[str, int], Pair] = field(default_factory=dict)
    """Messages per second: the minimal consumer with the same guarantee, and Redrive."""
    bare: dict[int, list[float]] = field(default_factory=dict)
    """Messages per second, read and acknowledged, not stored."""
    peers: dict[str, list[float]] = field(default_factory=dict)
    growth: dict[str, float] = field(default_factory=dict)
    """Memory growth in MiB."""
    messages: int = 0
    """Number of messages for the memory growth."""
    dead_letters: dict[tuple[str, str], float] = field(default_factory=dict)
    """Milliseconds by database and query."""
    stored: int = 0
    """Number of stored dead letters."""
    absent: dict[str, str] = field(default_factory=dict)
    fsync: Interval | None = None

    def pair(self, database: str, batch: int) -> Pair:
        return self.own.setdefault((database, batch), Pair())

    def fastest(self, batch: int) -> list[float]:
        """Return the rates of the fastest library with this batch size."""
        rates = [self.peers[peer.name] for peer in PEERS if peer.batch == batch and self.peers.get(peer.name)]
        return max(rates, key=median, default=[])


def _floor(database: str, batch: int, limit: float) -> MeasuredTarget[Results]:
    def read(results: Results) -> Interval | None:
        pair = results.own.get((database, batch))
        return pair.ratio if pair else None

    mode = "one at a time" if batch == 1 else f"batches of {batch}"
    return MeasuredTarget(f"{NAMES[database]}, {mode}, vs durable floor", "≥", limit, "×", read)


def _fastest(database: str) -> MeasuredTarget[Results]:
    def read(results: Results) -> Interval | None:
        pair, peer = results.own.get((database, 100)), results.fastest(100)
        if not pair or not pair.own or not peer:
            return None
        return Interval.of([own / theirs for own, theirs in zip(pair.own, peer, strict=False)])

    return MeasuredTarget(f"{NAMES[database]}, batches of 100, vs fastest library", "≥", 1, "×", read)


def _growth(database: str) -> MeasuredTarget[Results]:
    def read(results: Results) -> Interval | None:
        growth = results.growth.get(database)
        return None if growth is None else Interval.exactly(round(growth, 1))

    return MeasuredTarget(f"{NAMES[database]}, memory growth", "≤", MAX_GROWTH, " MiB", read)


def _dead_letters(database: str, query: str) -> MeasuredTarget[Results]:
    def read(results: Results) -> Interval | None:
        milliseconds = results.dead_letters.get((database, query))
        return None if milliseconds is None else Interval.exactly(round(milliseconds, 1))

    return MeasuredTarget(f"{NAMES[database]}, dead letters, {query}", "≤", 100, " ms", read)


TARGETS = (
    _floor("postgres", 100, 0.4),
    _floor("sqlite", 100, 0.4),
    _floor("postgres", 1, 0.45),
    _floor("sqlite", 1, 0.6),
    _fastest("postgres"),
    _fastest("sqlite"),
    *(_growth(database) for database in NAMES),
    *(_dead_letters(database, query) for database in NAMES for query in ("list", "one handler", "groups")),
)
