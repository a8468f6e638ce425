"""Plugins and fixtures of every test. Each is described in its own file."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from redrive.core.context import scope_around
from redrive.journal.bus import SUBSCRIPTIONS
from redrive.journal.redaction.secrets import forget_values

pytest_plugins = ["tests.order", "tests.servers.fixtures", "tests.requirements"]

# These machines are noisy, so a slow example does not fail. Under CI the examples are the same in every run.
settings.register_profile("redrive", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "redrive")

# A shell starts background programs with Ctrl+C ignored, and the processes of a test inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector: tests and modules stay, and it would scan all of them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[None]:
    """Reports between parallel processes are UTF-8. A lone surrogate in the report of a failure would end the run."""
    return _sendable((yield))  # type: ignore[no-any-return]  # a hook wrapper receives the result


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_sendable(key): _sendable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_sendable(each) for each in value)
    return value


@pytest.fixture(scope="module", autouse=True)
def no_secrets_of_other_modules() -> None:
    """Registered secrets apply to the whole process: a password of one module may be a word of another."""
    forget_values()


@pytest.fixture(autouse=True)
def nothing_is_left_in_the_process() -> Iterator[None]:
    """A sink or a scope that a test leaves changes the tests after it."""
    before = list(SUBSCRIPTIONS)
    yield
    left = [each for each in SUBSCRIPTIONS if each not in before]
    assert not left, f"still subscribed: {left}"
    assert scope_around() is None
