"""The order of parallel tests: long ones first, so that no process is left with a long one at the end."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # published without types

LONG = ("tests/docs", "tests/typing", "tests/console", "tests/acceptance", "tests/migration", "tests/conformance")
"""Folders in this order, before all others."""
APART = ("tests/docs/test_pages.py", "tests/docs/test_examples.py", "tests/acceptance/crash/test_points.py")
"""Files whose tests share no expensive fixture: each test goes to any free process."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((at for at, folder in enumerate(LONG) if item.nodeid.startswith(folder)), len(LONG)))


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # likewise
    """Schedules tests by file."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(APART) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # files with the most tests are not the slowest ones
    return Scheduling(config, log)
