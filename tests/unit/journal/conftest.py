"""No test of this folder leaves a sink behind: a later test of the process would behave differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from redrive.core.context import CLOCK_USERS, SLOW_PATH_USERS
from redrive.journal.bus import ATTEMPT_WRAPPERS, HANDLER_WRAPPERS, SUBSCRIPTIONS

STATE: dict[str, Sequence[object]] = {
    "SUBSCRIPTIONS": SUBSCRIPTIONS,
    "ATTEMPT_WRAPPERS": ATTEMPT_WRAPPERS,
    "HANDLER_WRAPPERS": HANDLER_WRAPPERS,
    "WATCH": SLOW_PATH_USERS,
    "TIMED": CLOCK_USERS,
}


@pytest.fixture(autouse=True)
def journal_as_before() -> Iterator[None]:
    """Compare the global state of the journal before and after each test."""
    before = {name: list(entries) for name, entries in STATE.items()}
    yield
    assert {name: list(entries) for name, entries in STATE.items()} == before
