"""The options of a worker, and its status for an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from ..core.outage import Parking
from ..core.text import safe_str
from ..journal.redaction import redact_text

MAX_PROBLEM_CHARS = 200
"""Length of an error in the status, in heartbeats and in the findings of operators."""


def describe_problem(error: Exception, /) -> str:
    """Return an error in one short line, without secrets."""
    text = redact_text(f"{type(error).__name__}: {' '.join(safe_str(error).split())}")
    return text if len(text) <= MAX_PROBLEM_CHARS else f"{text[: MAX_PROBLEM_CHARS - 1]}…"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a worker. Immutable.

    Attributes:
        name: Name of the worker.
        threads: Maximum number of sync jobs at the same time.
        tasks: Maximum number of async jobs at the same time.
        processes: Maximum number of jobs in processes at the same time.
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
    processes: int = 1


class Status(NamedTuple):
    """The status of a worker. Immutable.

    Attributes:
        name: Name of the worker.
        state: `starting`, `working`, `alone` (runs one job whose worker died before), `draining` or
            `ended`.
        since: When it was started.
        running: Jobs that are running.
        done: Jobs that are done.
        again: Attempts that failed or asked for a retry.
        dead: Dead letters, including blocked jobs.
        late: Results that came too late and changed nothing.
        overdue: Sync functions that run longer than their attempt timeout.
        parked: Job types that are paused after an outage, with the reason.
        trouble: The last error of the ledger, while it cannot be reached.
        partitions: Number of extractions by state. Empty if there are no datasets.
        failing: Other tasks of the worker that failed, such as reading a stream, with the error.
        cancelled: Jobs that were cancelled while they ran.
    """

    name: str
    state: str
    since: datetime
    running: int
    done: int
    again: int
    dead: int
    late: int
    overdue: int
    parked: Mapping[str, str]
    trouble: str | None
    partitions: Mapping[str, int] = {}
    failing: Mapping[str, str] = {}
    cancelled: int = 0
