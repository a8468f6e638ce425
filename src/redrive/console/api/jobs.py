"""Jobs of all types."""

from __future__ import annotations

from fastapi import APIRouter

from ...ops.dead_letters.model import Revealed
from ...ops.jobs import JobLine, JobReport
from ..render.problem import missing
from .word import Because, Here, Limit, Number, States, Text, problems

router = APIRouter(prefix="/api/jobs", tags=["jobs"], responses=problems())


@router.get("", responses=problems(422))
def jobs(view: Here, state: States | None = None, kind: Text = None, limit: Limit = 100) -> list[JobLine]:
    """List jobs: queued ones by due time, ended ones latest first, and without a state the newest first."""
    return view.ops.jobs.find(state=state, kind=kind, limit=limit)


@router.get("/{number}", responses=problems(404, 422))
def job(view: Here, number: Number) -> JobReport:
    """Show one job, with secrets masked."""
    found = view.ops.jobs.get(number)
    if found is None:
        raise missing(f"job {number} does not exist")
    return found


@router.post("/{number}/reveal", responses=problems(409, 422))
def reveal(view: Here, number: Number, body: Because) -> Revealed:
    """Return the payload with secrets, and record that in the audit log."""
    return view.ops.jobs.reveal(number, because=body.because)
