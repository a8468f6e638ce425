"""What a run found."""

from dataclasses import dataclass, field
from statistics import mean

from benchmarks.durable.idle import Idle
from benchmarks.interval import Interval


@dataclass
class Pair:
    """Ours between two of the base, round by round: noise that takes longer than a round hits both alike."""

    base: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)

    def add(self, before: float, own: float, after: float) -> None:
        self.base.append(mean((before, after)))
        self.own.append(own)

    def around(self, before: float, base: float, after: float) -> None:
        """The other way round: the base between two of ours."""
        self.base.append(base)
        self.own.append(mean((before, after)))

    @property
    def ratio(self) -> Interval | None:
        """Own to base."""
        return Interval.of([own / base for own, base in zip(self.own, self.base, strict=True)]) if self.own else None


@dataclass
class Results:
    """By database, and what else tells one case from another."""

    drains: dict[tuple[str, int], Pair] = field(default_factory=dict)
    """Jobs in a second: the raw loop, and the ledger's."""
    submits: dict[tuple[str, str], Pair] = field(default_factory=dict)
    """Jobs in a second: by connections of their own, and through one ledger. By database, and what the others write."""
    once: dict[tuple[str, str], Pair] = field(default_factory=dict)
    """Microseconds a call: bare statements, and `once`; first calls and repeated ones."""
    piles: dict[tuple[str, str], Pair] = field(default_factory=dict)
    """Milliseconds of a claim of 100: beside 10,000 jobs, and beside 1,000,000."""
    tenants: dict[str, Pair] = field(default_factory=dict)
    """Milliseconds of a fair claim of 100 among 1,000,000 jobs: of one tenant, and of 1,000."""
    idle: dict[str, Idle] = field(default_factory=dict)
    peers: dict[str, Pair] = field(default_factory=dict)
    """Jobs in a second: the peer's, and the ledger's run as the peer is."""
    distance: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """Jobs in a second, by subject and milliseconds of a round trip."""
    absent: dict[str, str] = field(default_factory=dict)
    fsync: Interval | None = None
    """Milliseconds that the disk takes to make 4 KiB durable: what one commit costs at least."""

    def pair(self, database: str, batch: int) -> Pair:
        return self.drains.setdefault((database, batch), Pair())
