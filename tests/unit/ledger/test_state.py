"""What people call a state, and what becomes of a lost lease: pure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.ledger.jobs.lease_expiry import after_loss
from redrive.ledger.state import DEAD, DONE, DROPPED, LEASED, PRUNED, QUARANTINE, READY, shown


@pytest.mark.parametrize(
    ("state", "facts", "name"),
    [
        (None, {}, "idle"),
        (READY, {}, "queued"),
        (READY, {"replay": True}, "replaying"),
        (READY, {"attempts": 1}, "retry_wait"),
        (READY, {"attempts": 1, "replay": True}, "retry_wait"),
        (LEASED, {}, "queued"),
        (LEASED, {"started": True, "attempts": 1}, "running"),
        (LEASED, {"attempts": 1}, "retry_wait"),
        (DONE, {"attempts": 2}, "done"),
        (PRUNED, {}, "done"),
        (DEAD, {}, "dlq"),
        (DEAD, {"blocked": True}, "blocked"),
        (DROPPED, {}, "discarded"),
    ],
)
def test_what_people_call_it(state: int | None, facts: dict[str, Any], name: str) -> None:
    assert shown(state, **facts) == name


@pytest.mark.req("L-3")
@given(
    started=st.booleans(),
    alive=st.booleans(),
    attempts=st.integers(0, 5),
    most=st.none() | st.integers(1, 5),
    crashes=st.integers(0, 2),
)
def test_a_lost_lease(started: bool, alive: bool, attempts: int, most: int | None, crashes: int) -> None:
    loss = after_loss(started=started, alive=alive, attempts=attempts, max_attempts=most, crashes=crashes, priority=0)
    assert loss.crashes == crashes + (started and not alive)
    assert loss.attempt is started
    dead = started and (loss.crashes >= 3 or (most is not None and attempts >= most))
    assert (loss.state == DEAD) is dead
    if not dead:
        assert loss.state == READY
        assert (loss.priority == QUARANTINE) is (started and not alive and loss.crashes >= 2)
    if loss.crashes >= 3:
        assert loss.reason == "crashed_worker"
