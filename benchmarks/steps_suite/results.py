"""Results and targets of a run."""

from dataclasses import dataclass, field

from benchmarks.interval import Interval
from benchmarks.target import MeasuredTarget

OURS = "redrive"
SYNC = "redrive on Postgres"
DBOS, TEMPORAL = "DBOS", "Temporal"
DBOS_DEFAULT = "DBOS, default threads"
DEFAULT_THREADS = 8
"""Default of a worker of Redrive."""
THREADS = 32
"""Number of sync jobs that Redrive and DBOS run concurrently."""
LIMIT = 5.0
"""Minimum ratio to the rate of another library."""


@dataclass
class Results:
    """Jobs of ten steps per second, one figure per round."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    fsync: Interval | None = None

    def ratio(self, peer: str) -> Interval | None:
        """Compare Redrive with a library, round by round. DBOS counts with the faster of its two settings."""
        ours, theirs = self.rates.get(SYNC), self.rates.get(peer)
        if not ours or not theirs:
            return None
        if peer == DBOS and DBOS_DEFAULT in self.rates:
            theirs = [max(both) for both in zip(theirs, self.rates[DBOS_DEFAULT], strict=False)]
        return Interval.of([own / other for own, other in zip(ours, theirs, strict=False)])


def _peer(peer: str) -> MeasuredTarget[Results]:
    return MeasuredTarget(f"jobs of ten steps, vs {peer}", "≥", LIMIT, "×", lambda results: results.ratio(peer))


TARGETS = (_peer(DBOS), _peer(TEMPORAL))
