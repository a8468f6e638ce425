"""What a run found, and what it is to be judged by."""

from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from benchmarks.durable.results import Pair
from benchmarks.durable.targets import NAMES
from benchmarks.interval import Interval
from benchmarks.target import Promise

BATCHES = (100, 1)
FLAT = 24.0
"""MiB by which a process may grow over a run and still be called flat: caches and fragments, not messages."""


class Peer(NamedTuple):
    """One library in one setting."""

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
    """By database and batch; each ratio is of one round."""

    own: dict[tuple[str, int], Pair] = field(default_factory=dict)
    """Messages in a second: the floor of our contract, and ours."""
    bare: dict[int, list[float]] = field(default_factory=dict)
    """Read and acknowledged, written nowhere."""
    peers: dict[str, list[float]] = field(default_factory=dict)
    growth: dict[str, float] = field(default_factory=dict)
    """MiB."""
    messages: int = 0
    """Over which it grew."""
    letters: dict[tuple[str, str], float] = field(default_factory=dict)
    """Milliseconds."""
    pile: int = 0
    absent: dict[str, str] = field(default_factory=dict)
    fsync: Interval | None = None

    def pair(self, database: str, batch: int) -> Pair:
        return self.own.setdefault((database, batch), Pair())

    def fastest(self, batch: int) -> list[float]:
        """What the fastest peer did that takes as many at a time."""
        found = [self.peers[peer.name] for peer in PEERS if peer.batch == batch and self.peers.get(peer.name)]
        return max(found, key=median, default=[])


def _floor(database: str, batch: int, limit: float) -> Promise[Results]:
    def read(results: Results) -> Interval | None:
        pair = results.own.get((database, batch))
        return pair.ratio if pair else None

    many = "one at a time" if batch == 1 else f"batches of {batch}"
    return Promise(f"{NAMES[database]}, {many}, to the durable floor", "≥", limit, "×", read)


def _ahead(database: str) -> Promise[Results]:
    def read(results: Results) -> Interval | None:
        pair, peer = results.own.get((database, 100)), results.fastest(100)
        if not pair or not pair.own or not peer:
            return None
        return Interval.of([own / theirs for own, theirs in zip(pair.own, peer, strict=False)])

    return Promise(f"{NAMES[database]}, batches of 100, to the fastest peer", "≥", 1, "×", read)


def _flat(database: str) -> Promise[Results]:
    def read(results: Results) -> Interval | None:
        found = results.growth.get(database)
        return None if found is None else Interval.exactly(round(found, 1))

    return Promise(f"{NAMES[database]}, growth over many messages", "≤", FLAT, " MiB", read)


def _letters(database: str, what: str) -> Promise[Results]:
    def read(results: Results) -> Interval | None:
        found = results.letters.get((database, what))
        return None if found is None else Interval.exactly(round(found, 1))

    return Promise(f"{NAMES[database]}, dead letters: {what}", "≤", 100, " ms", read)


TARGETS = (
    _floor("postgres", 100, 0.4),
    _floor("sqlite", 100, 0.4),
    _floor("postgres", 1, 0.45),
    _floor("sqlite", 1, 0.6),
    _ahead("postgres"),
    _ahead("sqlite"),
    *(_flat(database) for database in NAMES),
    *(_letters(database, what) for database in NAMES for what in ("list", "one handler", "groups")),
)
