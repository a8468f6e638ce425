"""Bulk operations (sweeps): show their progress, pause, resume and cancel them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from ...ops.sweeps import Sweep, SweepReport
from ..queries import Limit
from ..render.errors import require
from ..view import CurrentView, RowId
from .schema import Because, problems

router = APIRouter(prefix="/api/sweeps", tags=["sweeps"], responses=problems())


@router.get("", responses=problems(422))
def sweeps(view: CurrentView, limit: Annotated[Limit, Query()] = 100) -> list[Sweep]:
    """List sweeps, newest first."""
    return view.operator.sweeps.find(limit=limit)


@router.get("/{number}", responses=problems(404, 422))
def sweep(
    view: CurrentView,
    number: RowId,
    after: Annotated[int, Query(ge=-1, le=2**31)] = -1,
    limit: Annotated[Limit, Query()] = 100,
) -> SweepReport:
    """Show one sweep with the outcomes that follow the position `after`."""
    report = view.operator.sweeps.get(number, after=after, limit=limit)
    return require(report, f"sweep {number} does not exist")


@router.post("/{number}/{verb}", responses=problems(409, 422))
def change_state(
    view: CurrentView,
    number: RowId,
    verb: Literal["pause", "resume", "cancel"],
    body: Because,
) -> Sweep:
    """Pause, resume or cancel a sweep."""
    operations = {
        "pause": view.operator.sweeps.pause,
        "resume": view.operator.sweeps.resume,
        "cancel": view.operator.sweeps.cancel,
    }
    return operations[verb](number, because=body.because)
