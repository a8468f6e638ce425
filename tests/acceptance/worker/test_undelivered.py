"""A worker is killed when its claim is durable and has not reached it: a job's only attempt is not used up."""

from __future__ import annotations

import signal

import pytest

from redrive.ledger import NewJob, open_ledger

from .shift import DONE, Shift


@pytest.mark.req("L-3")
@pytest.mark.parametrize("point", ["turn.after_commit", "start.before_commit"])
def test_an_only_attempt_that_did_not_start_is_made_by_the_next_worker(shift: Shift, point: str) -> None:
    with open_ledger(shift.url) as ledger:
        ledger.submit_many([NewJob("work", f"k{n:03}", max_attempts=1) for n in range(6)])
    assert shift.wait(shift.hire(crash_at=f"{point}:1:kill")) == -signal.SIGKILL, shift.story()
    assert not shift.begun("work")
    assert shift.wait(shift.hire("until=idle")) == 0, shift.story()
    assert shift.states() == {DONE: 6}
    assert set(shift.effects("work").values()) == {1}
    with open_ledger(shift.url) as ledger:
        assert ledger.dead_letters() == []
        assert {job.attempts for job in ledger.jobs("done")} == {1}
    shift.balanced()
