"""WorkerOptions: how a worker works."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.outage import Parking


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker works. Immutable.

    Attributes:
        name: Name of the worker.
        threads: Maximum number of sync jobs at the same time.
        tasks: Maximum number of async jobs at the same time.
        lease_seconds: How long a job stays leased without a renewal.
        drain_seconds: How long running jobs may take when the worker stops.
        parking: When failures count as an outage.
        retention_seconds: How long done jobs are kept.
    """

    name: str
    threads: int
    tasks: int
    lease_seconds: float
    drain_seconds: float
    parking: Parking
    retention_seconds: float
