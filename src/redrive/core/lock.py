"""One lock for what threads share in a process: held for a few instructions, and only while something fails."""

from __future__ import annotations

import os
import sys
from _thread import RLock
from collections.abc import Callable

LOCK = RLock()
"""Reentrant: a signal handler or a finaliser may run in the thread that holds it, and make a call that fails."""

GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
"""With it, CPython switches threads only at calls and backward jumps: a read, a comparison and a write in a row are one step.
Where that is relied on, the code says so; without the GIL the lock is taken."""


def before_fork(load: Callable[[], object], /) -> None:
    """Load what is imported at its first use before anybody forks: a child of a thread that is importing waits for ever."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=load)


if hasattr(os, "register_at_fork"):
    # A child forked while another thread held the lock would wait for ever for a thread it does not have.
    os.register_at_fork(after_in_child=LOCK._at_fork_reinit)  # type: ignore[attr-defined]  # CPython's own idiom
