"""The stored states of a job, and what people call them: computed here and nowhere else."""

from __future__ import annotations

from typing import Literal, TypeAlias

READY, LEASED, DONE, DEAD, DROPPED, PRUNED = range(6)
"""As stored. Dropped: a person discarded it, or a replay took its place. Pruned: only its key is still remembered."""

State: TypeAlias = Literal["ready", "leased", "done", "dead", "dropped", "pruned"]
STATES: tuple[State, ...] = ("ready", "leased", "done", "dead", "dropped", "pruned")

Shown: TypeAlias = Literal["idle", "queued", "running", "retry_wait", "blocked", "dlq", "replaying", "done", "discarded"]

Status: TypeAlias = Literal["pending", "replaying", "replayed", "discarded"]
"""Of a dead letter."""

PRIORITIES = (-2, -1, 0, 1, 2)
"""Lower runs first. Few and fixed: a claim asks the index for each by equality, so that a pile of jobs that are not due
yet in one never has to be read through to find what is due in the next."""
QUARANTINE = 9
"""Where a job goes that was running when its worker died: from there it is claimed alone, and last."""

FAILED, LOST, RETURNED = "failed", "lost", "returned"
"""Outcomes of an attempt that has a row. Returned: not done and not charged (asked to come back, or drained)."""


def shown(state: int | None, *, attempts: int = 0, started: bool = False, replay: bool = False, blocked: bool = False) -> Shown:
    """The name that people know for a job in this state; None is no job at all.

    attempts: made so far. started: the lease's attempt has begun. replay: it is the replay of a dead letter.
    blocked: its dead letter waits for something outside.
    """
    if state is None:
        return "idle"
    if state == READY or (state == LEASED and not started):
        if attempts:
            return "retry_wait"
        return "replaying" if replay else "queued"
    if state == LEASED:
        return "running"
    if state == DEAD:
        return "blocked" if blocked else "dlq"
    return "discarded" if state == DROPPED else "done"
