"""One lock for state that threads share. It is held briefly, and only when something fails."""

from __future__ import annotations

import os
import sys
from _thread import RLock
from collections.abc import Callable

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
