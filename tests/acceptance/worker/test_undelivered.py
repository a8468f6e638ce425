"""A worker is killed around the writes that claim and start jobs: only a started attempt is used up."""

from __future__ import annotations

import signal

import pytest

from redrive.ledger import NewJob, open_ledger

from .shift import DEAD, DONE, Shift


@pytest.mark.req("L-3")
@pytest.mark.parametrize("point", ["turn.after_commit:1", "worker.claimed:1", "turn.before_commit:2"])
def test_an_only_attempt_that_did_not_start_is_left_to_the_next_worker(shift: Shift, point: str) -> None:
    """The first write claims. The second one starts."""
    with open_ledger(shift.url) as ledger:
        ledger.submit_many([NewJob("work", f"k{n:03}", max_attempts=1) for n in range(6)])
    assert shift.wait(shift.hire(crash_at=f"{point}:kill")) == -signal.SIGKILL, shift.story()
    assert not shift.begun("work")
    assert shift.wait(shift.hire("until=idle")) == 0, shift.story()
    assert shift.states() == {DONE: 6}
    assert set(shift.effects("work").values()) == {1}
    with open_ledger(shift.url) as ledger:
        assert ledger.dead_letters() == []
        assert {job.attempts for job in ledger.jobs("done")} == {1}
    shift.balanced()


@pytest.mark.req("L-3")
@pytest.mark.parametrize("point", ["turn.before_commit:40", "turn.after_commit:40", "worker.ran:60"])
def test_a_kill_uses_up_at_most_one_short_job_of_each_thread(shift: Shift, point: str) -> None:
    """Each write settles finished jobs and starts waiting ones. No job runs twice, and few are used up."""
    with open_ledger(shift.url) as ledger:
        ledger.submit_many([NewJob("brief", f"k{n:03}", max_attempts=1) for n in range(400)])
    assert shift.wait(shift.hire("threads=4", crash_at=f"{point}:kill")) == -signal.SIGKILL, shift.story()
    assert shift.wait(shift.hire("threads=4", "until=idle")) == 0, shift.story()
    states, effects = shift.states(), shift.effects("brief")
    assert states[DONE] + states[DEAD] == 400
    assert states[DEAD] <= 4
    assert set(effects.values()) == {1}
    assert len(effects) >= states[DONE]
    shift.balanced()
