"""The pytest plugin. Every pytest run loads it, so it imports nothing until a fixture is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..journal import Ring
    from .clock import FakeClock

# Failures of the conformance suite then show the compared values.
pytest.register_assert_rewrite("redrive.testing.storage")


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of commands that tests call directly, or submit in async tests."""
    config.addinivalue_line("filterwarnings", "ignore:redrive. .* was called directly")
    config.addinivalue_line("filterwarnings", "ignore:redrive. .*submit.. blocks the event loop")


@pytest.fixture
def redrive_clock() -> Iterator[FakeClock]:
    """A clock without waiting, for this test. Its `slept` lists all waits."""
    from .clock import instant  # noqa: PLC0415

    with instant() as clock:
        yield clock


@pytest.fixture
def redrive_journal() -> Iterator[Ring]:
    """The log records of this test, including successful calls: `redrive_journal.records`."""
    from ..journal import ring, subscribe  # noqa: PLC0415

    records = ring()
    unsubscribe = subscribe(records, every=True, inline=True)
    try:
        yield records
    finally:
        unsubscribe()
