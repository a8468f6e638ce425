"""The state of the ledger, its problems, and a change marker."""

from __future__ import annotations

from fastapi import APIRouter

from ...ops.health.finding import Health
from ...ops.ledger import Status
from .word import Here, problems

router = APIRouter(prefix="/api", tags=["ledger"], responses=problems())


@router.get("/status")
def status(view: Here) -> Status:
    """Count jobs by type and state, and list workers and paused (parked) job types."""
    return view.ops.status()


@router.get("/doctor")
def doctor(view: Here) -> Health:
    """List problems with start time, count and fix."""
    return view.ops.health.check()


@router.get("/pulse")
def pulse(view: Here) -> dict[str, str]:
    """Return a text that differs after every change. Its cost does not depend on the size of the ledger."""
    return {"pulse": view.ops.overview.change_token()}
