"""Outcome: what a verdict makes of a partition. Pure; the one place where a status follows from another."""

from __future__ import annotations

from typing import NamedTuple

from .model import SHADES, Decision, RunState, Shade, Status


class Standing(NamedTuple):
    """The outcomes of a partition, as far as a verdict changes them."""

    status: Status
    current_run_id: str | None
    current_raw_id: str | None
    current_attempt_no: int
    attempt_count: int
    last_verdict: Decision | None


class Said(NamedTuple):
    """A verdict, and the run that it is about."""

    decision: Decision
    run_id: str
    raw_run_id: str
    attempt_no: int
    fenced: bool
    """Whether the run still has the partition: nobody else was given it since."""


def judged(was: Standing, said: Said, /) -> tuple[Standing, RunState]:
    """What the partition is after the verdict, and what the run is. A late one counts, and changes nothing else."""
    counted = was._replace(attempt_count=was.attempt_count + 1)
    if not said.fenced or said.attempt_no <= was.current_attempt_no:
        return counted, "late"
    if said.decision == "accepted":
        moved = counted._replace(
            status="success", current_run_id=said.run_id, current_raw_id=said.raw_run_id, current_attempt_no=said.attempt_no
        )
        return moved._replace(last_verdict="accepted"), "accepted"
    status: Status = "failed" if was.current_run_id is None else "success"
    return counted._replace(status=status, last_verdict="rejected"), "rejected"


def requeued(status: Status, /) -> Status:
    """What a status is when the control plane has it tried again. What is readable stays so."""
    return "success" if status == "success" else "pending"


def shade(status: Status, last_verdict: Decision | None, terminal: bool, /) -> Shade:
    """The status as people see it."""
    if status == "success":
        return "refresh_failed" if last_verdict == "rejected" else "success"
    return "terminal" if terminal else status


def stored(seen: Shade, /) -> int:
    """A shade as its number."""
    return SHADES.index(seen)
