"""Bulk operations (sweeps): progress, pause, resume and cancel."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from ...ops.sweeps import Sweep, SweepReport
from ..render.problem import missing
from .word import Because, Here, Limit, Number, problems

router = APIRouter(prefix="/api/sweeps", tags=["sweeps"], responses=problems())


@router.get("", responses=problems(422))
def sweeps(view: Here, limit: Limit = 100) -> list[Sweep]:
    """List sweeps, newest first."""
    return view.ops.sweeps.find(limit=limit)


@router.get("/{number}", responses=problems(404, 422))
def sweep(view: Here, number: Number, after: Annotated[int, Query(ge=-1, le=2**31)] = -1, limit: Limit = 100) -> SweepReport:
    """Show one sweep with the outcomes that follow the position `after`."""
    found = view.ops.sweeps.get(number, after=after, limit=limit)
    if found is None:
        raise missing(f"sweep {number} does not exist")
    return found


@router.post("/{number}/{verb}", responses=problems(409, 422))
def move(view: Here, number: Number, verb: Literal["pause", "resume", "cancel"], body: Because) -> Sweep:
    """Pause, resume or cancel a sweep."""
    moves = {"pause": view.ops.sweeps.pause, "resume": view.ops.sweeps.resume, "cancel": view.ops.sweeps.cancel}
    return moves[verb](number, because=body.because)
