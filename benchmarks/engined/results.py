"""What a run found, and what it is to be judged by."""

from dataclasses import dataclass, field

from benchmarks.engined.brokers import BROKERS
from benchmarks.interval import Interval
from benchmarks.target import Promise

LOOP, FASTSTREAM, FAILURES, ALL = "loop", "faststream", "failures", "all"
PROCESSES = (1, 2, 4, 8)
LIMIT = 0.8
"""Our rate with `persist="failures"` to that of the broker's own loop."""


@dataclass
class Results:
    """Messages in a second, by broker, way and processes: one figure for each round, interleaved."""

    rates: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    fsync: Interval | None = None

    def ratio(self, broker: str, way: str, base: str) -> Interval | None:
        """One way to another, round by round, in one process."""
        own, other = self.rates.get((broker, way, 1)), self.rates.get((broker, base, 1))
        if not own or not other:
            return None
        return Interval.of([mine / theirs for mine, theirs in zip(own, other, strict=False)])


def _near(broker: str) -> Promise[Results]:
    name = f'{BROKERS[broker].name}, persist="failures", to its own loop'
    return Promise(name, "≥", LIMIT, "×", lambda results: results.ratio(broker, FAILURES, LOOP))


TARGETS = tuple(map(_near, BROKERS))
