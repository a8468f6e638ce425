"""What becomes of a job whose lease ran out. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ..state import DEAD, QUARANTINE, READY

ALONE_CRASHES = 2
"""Crashes from which on a job runs alone: one may be an operator's kill, or the fault of a job beside it."""
MAX_CRASHES = 3


class Loss(NamedTuple):
    """The job's next state after its lease was lost."""

    state: int
    crashes: int
    priority: int
    attempt: bool
    """An attempt had begun, and was lost."""
    reason: str | None
    """Why it is dead, or why it runs alone from now on."""


def after_loss(*, started: bool, alive: bool, attempts: int, max_attempts: int | None, crashes: int, priority: int) -> Loss:
    """What was only claimed goes back as it was. What had begun counts as an attempt, and as a crash of its worker.

    alive: the worker was seen after the lease had run out: it lost the lease, but did not crash.
    """
    if not started:
        return Loss(READY, crashes, priority, False, None)
    if not alive:
        crashes += 1
    if crashes >= MAX_CRASHES:
        return Loss(DEAD, crashes, priority, True, "crashed_worker")
    if max_attempts is not None and attempts >= max_attempts:
        return Loss(DEAD, crashes, priority, True, "attempts")
    if alive:
        return Loss(READY, crashes, priority, True, "lost_lease")
    return Loss(READY, crashes, QUARANTINE if crashes >= ALONE_CRASHES else priority, True, "lost_worker")
