"""A process is killed in the middle of a bulk operation on jobs. A worker in another process finishes it."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.sweep import MAX_STEP_ITEMS
from tests.zygote import Zygote

from .job_sweep import BECAUSE, DUE, KIND
from .oracle import fresh

PROGRAM = "tests.acceptance.crash.job_sweep"
JOBS = 3 * MAX_STEP_ITEMS + 5


def run(zygote: Zygote, url: str, folder: Path, *words: str, crash_at: str = "") -> int:
    """Run a process of the operation to its end. Return its status."""
    output = folder / "output"
    return zygote.wait(zygote.fork(PROGRAM, [url, *words], output=output, crash_at=crash_at))


def count_changed(ledger: Ledger, act: str) -> int:
    """Return the number of jobs that have the change."""
    if act == "cancel":
        return ledger.counts()[KIND].cancelled
    return sum(job.due_at == DUE for job in ledger.jobs("ready", limit=2 * JOBS))


@pytest.mark.req("Q-2", "Q-3")
@pytest.mark.parametrize("act", ["cancel", "reschedule"])
# The first commit stores the operation, and each other one changes the next jobs.
@pytest.mark.parametrize(("point", "before"), [("sweep.before_commit:3", 1), ("sweep.after_commit:3", 2)])
def test_a_worker_finishes_the_sweep_of_a_killed_operator(
    url: str, zygote: Zygote, tmp_path: Path, act: str, point: str, before: int
) -> None:
    fresh(url)
    with open_ledger(url) as ledger:
        ids = [job.id for job in ledger.submit_many([NewJob(KIND, f"k{n}") for n in range(JOBS)])]
        other = ledger.submit(NewJob("other", "k")).id
        assert run(zygote, url, tmp_path, "begin", act, crash_at=f"{point}:kill") == -signal.SIGKILL
        assert count_changed(ledger, act) == before * MAX_STEP_ITEMS
        assert ledger.imbalance() == []
        # Two of the remaining jobs end before the operation continues. They are not changed.
        leases = ledger.claim({KIND: 2}, worker="w")
        ledger.settle([lease.done() for lease in leases])
        ended = {lease.job_id for lease in leases}

        assert run(zygote, url, tmp_path, "work") == 0, (tmp_path / "output").read_text()
        (sweep,) = ledger.sweeps.list()
        assert (sweep.state, sweep.made, sweep.skipped, sweep.total) == ("done", JOBS - 2, 2, JOBS)
        items = ledger.sweeps.items(sweep.id, limit=2 * JOBS)
        assert Counter(item.job_id for item in items) == Counter(ids), "each job once"
        assert {item.job_id for item in items if item.outcome == "skipped"} == ended
        assert {item.note for item in items if item.job_id in ended} == {"done"}
        assert count_changed(ledger, act) == JOBS - 2
        tally = ledger.counts()[KIND]
        assert (tally.done, tally.submitted) == (2, JOBS)
        untouched = ledger.get(other)
        assert untouched is not None
        assert (untouched.state, untouched.due_at < DUE) == ("ready", True)
        (entry,) = [entry for entry in ledger.audit() if entry.action.startswith("job.")]
        assert (entry.action, entry.actor, entry.because) == (f"job.{act}", "ann", BECAUSE)
        assert (entry.what["sweep"], entry.what["count"]) == (sweep.id, JOBS)
        assert ledger.audit_broken() is None
        assert ledger.imbalance() == []


@pytest.mark.req("Q-2")
def test_an_operation_that_was_not_stored_changes_nothing(url: str, zygote: Zygote, tmp_path: Path) -> None:
    fresh(url)
    with open_ledger(url) as ledger:
        ledger.submit_many([NewJob(KIND, f"k{n}") for n in range(5)])
        assert run(zygote, url, tmp_path, "begin", "cancel", crash_at="sweep.before_commit:1:kill") == -signal.SIGKILL
        assert ledger.sweeps.list() == []
        assert ledger.audit() == []
        assert ledger.counts()[KIND].ready == 5
