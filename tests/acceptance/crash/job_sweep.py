"""An operator's process and a worker's process for a bulk operation on jobs.

main([url, "begin", act]): plan and carry out an operation on all jobs of a type, as `redrive jobs cancel --kind crm.sync` does.
main([url, "work"]): a worker, until no bulk operation is running.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone

from redrive import App
from redrive.ops import JobFilter
from redrive.ops.operator import Operator

KIND = "crm.sync"
DUE = datetime(2030, 1, 31, 12, 30, tzinfo=timezone.utc)
BECAUSE = "INC-42"


def main(arguments: Sequence[str]) -> int:
    """Run one of the two processes."""
    url, role, *rest = arguments
    with App(url) as app:
        if role == "begin":
            jobs, chosen = (ann := Operator(app, actor="ann")).jobs, JobFilter(kind=KIND)
            plan = jobs.cancel(chosen) if rest == ["cancel"] else jobs.reschedule(chosen, DUE)
            ann.apply(plan, because=BECAUSE)
            return 0
        app.command("mail.send")(_send)  # a worker that does not run the jobs of the operation
        with app.worker():
            while app.ledger.sweeps.list(state="running"):
                time.sleep(0.01)
    return 0


def _send() -> None: ...
