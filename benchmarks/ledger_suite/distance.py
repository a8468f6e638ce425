"""Network latency between worker and database, without a limit to the bandwidth."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from benchmarks.ledger_suite.peers import Peer
from tests.servers.relay import Relay

TRIPS = (0, 20, 100)
"""Round trips in milliseconds."""
OWN = "redrive worker"
SUBJECTS = (
    Peer(OWN, "worker", "postgres", 100, 40_000),
    Peer("pgqueuer, batches of 100", "pgqueuer", "postgres", 100, 3000),
    Peer("procrastinate, 10 at once", "procrastinate", "postgres", 10, 120),
)


@contextmanager
def add_latency(url: str, trip: int) -> Iterator[str]:
    """Put a relay in front of a database and yield its address."""
    server = urlsplit(url)
    assert server.port is not None
    with Relay(server.port, host=server.hostname or "127.0.0.1", delay=trip / 1000) as relay:
        user = "" if server.username is None else f"{server.username}@"
        yield server._replace(netloc=f"{user}127.0.0.1:{relay.port}").geturl()
