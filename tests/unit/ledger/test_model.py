"""The displayed state of a job."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.ledger.model import DEAD, DONE, DROPPED, LEASED, PRUNED, READY, display_state


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
def test_display_state_follows_from_the_stored_state(state: int | None, facts: dict[str, Any], name: str) -> None:
    assert display_state(state, **facts) == name
