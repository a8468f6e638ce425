"""Megabytes that a process needs to plan for all partitions, at its peak: python -m benchmarks.partitioned.memory URL"""

import resource
import sys

from benchmarks.apart import tell
from redrive.ledger import open_ledger
from redrive.partitions.model import PartitionFilter
from redrive.partitions.queries import PartitionQueries


def measured(url: str) -> float:
    with open_ledger(url) as ledger:
        PartitionQueries(ledger).freeze("reprocess", PartitionFilter(source="crm"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    tell(measured(*sys.argv[1:]))
