"""Results of a run."""

from dataclasses import dataclass, field
from statistics import mean

from benchmarks.interval import Interval
from benchmarks.ledger_suite.idle import Idle


@dataclass
class Pair:
    """Redrive between two runs of the base, round by round. Noise that outlasts a round affects both."""

    base: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)

    def add(self, before: float, own: float, after: float) -> None:
        self.base.append(mean((before, after)))
        self.own.append(own)

    def around(self, before: float, base: float, after: float) -> None:
        """Add a run of the base between two runs of Redrive."""
        self.base.append(base)
        self.own.append(mean((before, after)))

    @property
    def ratio(self) -> Interval | None:
        """Redrive relative to the base."""
        return Interval.of([own / base for own, base in zip(self.own, self.base, strict=True)]) if self.own else None


@dataclass
class Results:
    """Figures by database and case."""

    drains: dict[tuple[str, int], Pair] = field(default_factory=dict)
    """Jobs per second: the raw loop and the ledger."""
    submits: dict[tuple[str, str], Pair] = field(default_factory=dict)
    """Jobs per second: 32 connections and one ledger. By database and the row that the connections write."""
    once: dict[tuple[str, str], Pair] = field(default_factory=dict)
    """Microseconds per call: bare statements and `once`. By database and first or repeated call."""
    backlogs: dict[tuple[str, str], Pair] = field(default_factory=dict)
    """Milliseconds per claim of 100: with 10,000 and with 1,000,000 other jobs."""
    tenants: dict[str, Pair] = field(default_factory=dict)
    """Milliseconds per fair claim of 100 among 1,000,000 jobs: with 1 and with 1,000 tenants."""
    idle: dict[str, Idle] = field(default_factory=dict)
    peers: dict[str, Pair] = field(default_factory=dict)
    """Jobs per second: the other library, and the ledger with the same settings."""
    distance: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """Jobs per second by library and round trip in milliseconds."""
    absent: dict[str, str] = field(default_factory=dict)
    fsync: Interval | None = None
    """Milliseconds to write and sync 4 KiB, which is the minimum for a commit."""

    def pair(self, database: str, batch: int) -> Pair:
        return self.drains.setdefault((database, batch), Pair())
