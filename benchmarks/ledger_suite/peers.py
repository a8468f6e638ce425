"""Other libraries for durable jobs. Each one has its own process and its own database."""

import sys
from dataclasses import dataclass, replace

from benchmarks.isolation import run_isolated


@dataclass(frozen=True)
class Peer:
    """A library with its settings."""

    name: str
    library: str
    database: str
    batch: int
    jobs: int
    """Enough for one or two seconds."""

    def rate(self, url: str, share: float = 1.0) -> float:
        """Return jobs per second. Raises RuntimeError if the program fails."""
        jobs = max(int(self.jobs * share), 20)
        return float(run_isolated(f"benchmarks.ledger_suite.peer_{self.library}", url, str(self.batch), str(jobs)))

    @property
    def counterpart(self) -> "Peer":
        """The ledger with the same settings. Concurrency counts as a batch."""
        own = OWN[self.database, 100 if self.batch > 1 else 1]
        return replace(own, jobs=max(own.jobs, self.jobs))


OWN = {
    (database, batch): Peer("redrive", "redrive", database, batch, jobs)
    for database, batch, jobs in (("postgres", 100, 5000), ("postgres", 1, 300), ("sqlite", 1, 300))
}
PEERS = (
    Peer("pgqueuer, batches of 100", "pgqueuer", "postgres", 100, 3000),
    Peer("pgqueuer, one at a time", "pgqueuer", "postgres", 1, 400),
    Peer("procrastinate, 10 at once", "procrastinate", "postgres", 10, 400),
    Peer("procrastinate, one at a time", "procrastinate", "postgres", 1, 300),
    Peer("DBOS queue", "dbos", "postgres", 100, 150),
    Peer("huey with fsync", "huey", "sqlite", 1, 1500),
)


def arguments() -> tuple[str, int, int]:
    """Parse the command line: address, batch size and number of jobs."""
    url, batch, jobs = sys.argv[1:]
    return url, int(batch), int(jobs)
