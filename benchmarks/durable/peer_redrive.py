"""Redrive itself, as its peers are run: python -m benchmarks.durable.peer_redrive URL BATCH JOBS"""

from contextlib import closing

from benchmarks.apart import tell
from benchmarks.durable.drain import OfTheLedger
from benchmarks.durable.peers import asked


def main() -> None:
    url, batch, jobs = asked()
    with closing(OfTheLedger(url)) as own:
        own.fill(jobs, by=batch)
        tell(own.drain(jobs, batch, 100))


if __name__ == "__main__":
    main()
