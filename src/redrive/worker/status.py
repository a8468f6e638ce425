"""Status: a worker at one moment, for a person who watches it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple


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
