"""The outcome of a job whose lease expired."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.ledger.jobs.lease_recovery import after_lease_expiry
from redrive.ledger.model import DEAD, QUARANTINE, READY


@pytest.mark.req("L-3")
@given(
    started=st.booleans(),
    alive=st.booleans(),
    attempts=st.integers(0, 5),
    most=st.none() | st.integers(1, 5),
    crashes=st.integers(0, 2),
)
def test_an_expired_lease_counts_only_if_started(
    started: bool, alive: bool, attempts: int, most: int | None, crashes: int
) -> None:
    expired = after_lease_expiry(started=started, alive=alive, attempts=attempts, max_attempts=most, crashes=crashes, priority=0)
    assert expired.crashes == crashes + (started and not alive)
    assert expired.lost_attempt is started
    dead = started and (expired.crashes >= 3 or (most is not None and attempts >= most))
    assert (expired.state == DEAD) is dead
    if not dead:
        assert expired.state == READY
        assert (expired.priority == QUARANTINE) is (started and not alive and expired.crashes >= 2)
    if expired.crashes >= 3:
        assert expired.reason == "crashed_worker"
