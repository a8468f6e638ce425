"""Other libraries for durable work. Each is run by itself, in a process and on a database of its own."""

import sys
from dataclasses import dataclass, replace

from benchmarks.apart import apart


@dataclass(frozen=True)
class Peer:
    """One library in one setting."""

    name: str
    library: str
    database: str
    batch: int
    jobs: int
    """Enough for a second or two of it."""

    def rate(self, url: str, share: float = 1.0) -> float:
        """Jobs in a second. RuntimeError says in one line what went wrong."""
        jobs = max(int(self.jobs * share), 20)
        return float(apart(f"benchmarks.durable.peer_{self.library}", url, str(self.batch), str(jobs)))

    @property
    def beside(self) -> "Peer":
        """Ours, to be run in the same way. Ten at once is a batch."""
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


def asked() -> tuple[str, int, int]:
    """What a peer's program was told: address, batch, jobs."""
    url, batch, jobs = sys.argv[1:]
    return url, int(batch), int(jobs)
