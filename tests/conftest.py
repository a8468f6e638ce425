"""Wires the parts that every test may use; each is described in its own file."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from redrive.journal.redaction.secrets import forget_values

pytest_plugins = ["tests.order", "tests.servers.fixtures", "tests.requirements"]

# These machines are noisy: a slow example is no failure. Under CI the examples are the same in every run.
settings.register_profile("redrive", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "redrive")

# A shell starts what is in its background deaf to Ctrl+C, and every process of a test with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[None]:
    """A report is sent as UTF-8 where tests run side by side: half a character in it, shown by a failure, would end the run."""
    return _sendable((yield))  # type: ignore[no-any-return]  # a hook wrapper is sent the result


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
    """Given values are hidden for the whole process: a password of one module may be a word of another."""
    forget_values()
