"""How the ledger stands, what is wrong with it, and whether anything has changed."""

from __future__ import annotations

from fastapi import APIRouter

from ...ops.finding import Health
from ...ops.ledger import Status
from .word import Here, problems

router = APIRouter(prefix="/api", tags=["ledger"], responses=problems())


@router.get("/status")
def status(view: Here) -> Status:
    """Jobs by kind and state, workers, what is parked."""
    return view.ops.status()


@router.get("/doctor")
def doctor(view: Here) -> Health:
    """What is wrong: since when, how many, and what mends it."""
    return view.ops.doctor()


@router.get("/pulse")
def pulse(view: Here) -> dict[str, str]:
    """Another text whenever anything has changed: cheap to ask for, whatever there is."""
    return {"pulse": view.ops.pulse()}
