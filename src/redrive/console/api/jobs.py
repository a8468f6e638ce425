"""Jobs of all types: list and show them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ...ops.dead_letters.model import Revealed
from ...ops.jobs import JobLine, JobReport
from ..queries import JobQuery
from ..render.errors import require
from ..view import CurrentView, RowId
from .schema import Because, problems

router = APIRouter(prefix="/api/jobs", tags=["jobs"], responses=problems())


@router.get("", responses=problems(422))
def jobs(view: CurrentView, query: Annotated[JobQuery, Query()]) -> list[JobLine]:
    """List jobs.

    Queued jobs are sorted by due time, and ended jobs latest first. Without a state, the newest
    jobs are first.
    """
    return view.operator.jobs.find(**dict(query))


@router.get("/{number}", responses=problems(404, 422))
def job(view: CurrentView, number: RowId) -> JobReport:
    """Show one job, with secrets masked."""
    return require(view.operator.jobs.get(number), f"job {number} does not exist")


@router.post("/{number}/reveal", responses=problems(409, 422))
def reveal(view: CurrentView, number: RowId, body: Because) -> Revealed:
    """Return the payload with secrets, and record that in the audit log."""
    return view.operator.jobs.reveal(number, because=body.because)
