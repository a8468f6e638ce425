"""What a run found, and what it is to be judged by."""

from dataclasses import dataclass, field

from benchmarks.interval import Interval
from benchmarks.target import Promise

OURS = "redrive"
SYNC = "redrive on Postgres"
DBOS, TEMPORAL = "DBOS", "Temporal"
DBOS_DEFAULT = "DBOS, default threads"
DEFAULT_THREADS = 8
"""Of a worker of ours."""
THREADS = 32
"""Sync jobs that Redrive and DBOS run at the same time."""
LIMIT = 5.0
"""Our rate to a peer's."""


@dataclass
class Results:
    """Jobs of ten steps in a second: one figure for each round, interleaved."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    fsync: Interval | None = None

    def ratio(self, peer: str) -> Interval | None:
        """Our rate to a peer's, round by round: to the faster one of its settings."""
        ours, theirs = self.rates.get(SYNC), self.rates.get(peer)
        if not ours or not theirs:
            return None
        if peer == DBOS and DBOS_DEFAULT in self.rates:
            theirs = [max(both) for both in zip(theirs, self.rates[DBOS_DEFAULT], strict=False)]
        return Interval.of([own / other for own, other in zip(ours, theirs, strict=False)])


def _ahead(peer: str) -> Promise[Results]:
    return Promise(f"jobs of ten steps, to {peer}", "≥", LIMIT, "×", lambda results: results.ratio(peer))


TARGETS = (_ahead(DBOS), _ahead(TEMPORAL))
