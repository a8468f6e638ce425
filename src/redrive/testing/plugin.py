"""The pytest plugin, loaded by its entry point in every pytest run: it imports nothing of ours before a fixture is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..journal import Ring
    from .clock import FakeClock

pytest.register_assert_rewrite("redrive.testing.storage")  # a suite that fails in a user's run shows what it compared


def pytest_configure(config: pytest.Config) -> None:
    """Let tests call commands, and submit them in async tests, where warnings are errors: both are fine there."""
    config.addinivalue_line("filterwarnings", "ignore:redrive. .* was called directly")
    config.addinivalue_line("filterwarnings", "ignore:redrive. .*submit.. blocks the event loop")


@pytest.fixture
def redrive_clock() -> Iterator[FakeClock]:
    """No waiting in this test: a FakeClock that has every wait in `slept`."""
    from .clock import instant  # noqa: PLC0415

    with instant() as clock:
        yield clock


@pytest.fixture
def redrive_journal() -> Iterator[Ring]:
    """What redrive records in this test, calls that succeed at once included: `redrive_journal.records`."""
    from ..journal import ring, subscribe  # noqa: PLC0415

    kept = ring()
    unsubscribe = subscribe(kept, every=True, inline=True)
    try:
        yield kept
    finally:
        unsubscribe()
