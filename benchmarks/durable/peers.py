"""Other libraries for durable work. Each is run by itself, in a process and on a database of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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
        module = f"benchmarks.durable.peer_{self.library}"
        command = [sys.executable, "-m", module, url, str(self.batch), str(max(int(self.jobs * share), 20))]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
        except subprocess.TimeoutExpired:
            raise RuntimeError("it did not finish") from None
        for line in reversed(done.stdout.splitlines()):
            if line.startswith("RATE "):
                return float(json.loads(line[5:]))
        raise RuntimeError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])


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


def tell(rate: float) -> None:
    """What it found."""
    print("RATE", json.dumps(rate), flush=True)
