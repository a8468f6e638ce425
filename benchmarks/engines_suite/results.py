"""Results and targets of a run."""

from dataclasses import dataclass, field

from benchmarks.engines_suite.brokers import BROKERS
from benchmarks.interval import Interval
from benchmarks.target import MeasuredTarget

LOOP, FLOOR, FASTSTREAM, FAILURES, ALL, SQLITE = "loop", "floor", "faststream", "failures", "all", "all-sqlite"
PROCESSES = (1, 2, 4, 8)
LIMIT = 0.8
"""Minimum ratio of Redrive with `persist="failures"` to the loop of the broker's client, and to the floor."""


@dataclass
class Results:
    """Messages per second by broker, method and number of processes, with one figure per round."""

    rates: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    fsync: Interval | None = None

    def ratio(self, broker: str, method: str, base: str) -> Interval | None:
        """Compare two methods in one process, round by round."""
        own, other = self.rates.get((broker, method, 1)), self.rates.get((broker, base, 1))
        if not own or not other:
            return None
        return Interval.of([mine / theirs for mine, theirs in zip(own, other, strict=False)])


def _ratio(broker: str, base: str, base_name: str) -> MeasuredTarget[Results]:
    name = f'{BROKERS[broker].name}, persist="failures", vs {base_name}'
    return MeasuredTarget(name, "≥", LIMIT, "×", lambda results: results.ratio(broker, FAILURES, base))


TARGETS = tuple(
    _ratio(broker, base, name)
    for broker in BROKERS
    for base, name in ((LOOP, "client loop"), (FLOOR, "client loop with json.loads and a call"))
)
