"""State that threads share: one lock, and one object for each name, such as a named budget.

The lock is held briefly, and only when something fails.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

LOCK = RLock()
"""Reentrant, because a signal handler or finaliser may need it in the thread that holds it."""

GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
"""With the GIL, CPython switches threads only at calls and backward jumps. A read, a comparison and
a write without a call between them are then atomic. Without the GIL, code that relies on it takes
the lock."""


def before_fork(load: Callable[[], object], /) -> None:
    """Call `load` before each fork, to import what is otherwise imported at first use.

    A child that is forked while another thread imports would deadlock in the same import.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=load)


if hasattr(os, "register_at_fork"):
    # A child that is forked while another thread holds the lock would wait for it forever.
    os.register_at_fork(after_in_child=LOCK._at_fork_reinit)  # type: ignore[attr-defined]  # as in `threading`

T = TypeVar("T")


class SharedByName(Generic[T]):
    """Creates objects by name and returns the same one for the same name.

    Asking for an existing name with other options raises ValueError.
    """

    def __init__(self, make: type[T]) -> None:
        self._make = make
        self._objects: dict[str, T] = {}

    def get(self, name: str, options: Mapping[str, object]) -> T:
        """Return the object of this name, and create it at first use."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of a shared {self._make.__name__} must be text: {name!r}")
        candidate = self._make(**options)  # checks the options before anything is stored
        with LOCK:
            shared = self._objects.setdefault(name, candidate)
        # Read from both objects, so that 30 equals timedelta(seconds=30).
        existing = {option: getattr(shared, option) for option in options}
        requested = {option: getattr(candidate, option) for option in options}
        if existing != requested:
            raise ValueError(
                f"{self._make.__name__} {name!r} already exists with {_format(existing)}, "
                f"not {_format(requested)}; use another name, or the same options"
            )
        return shared


def _format(options: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
