"""Peak memory in MB of a process that plans to reprocess all partitions.

Run it with `python -m benchmarks.partitions_suite.memory URL`.
"""

import resource
import sys

from benchmarks.isolation import print_result
from redrive.ledger import open_ledger
from redrive.partitions.model import PartitionFilter
from redrive.partitions.queries import PartitionQueries


def measure(url: str) -> float:
    with open_ledger(url) as ledger:
        PartitionQueries(ledger).freeze("reprocess", PartitionFilter(source="crm"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
