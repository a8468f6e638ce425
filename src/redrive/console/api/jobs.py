"""Jobs, of every kind."""

from __future__ import annotations

from fastapi import APIRouter

from ...ops.jobs import JobLine, JobReport
from ...ops.reveal import Revealed
from ..problem import missing
from .word import Because, Here, Limit, Number, States, Text, problems

router = APIRouter(prefix="/api/jobs", tags=["jobs"], responses=problems())


@router.get("", responses=problems(422))
def jobs(view: Here, state: States | None = None, kind: Text = None, limit: Limit = 100) -> list[JobLine]:
    """Waiting ones as they are due, ended ones the last first; without a state, the newest first."""
    return view.ops.jobs(state=state, kind=kind, limit=limit)


@router.get("/{number}", responses=problems(404, 422))
def job(view: Here, number: Number) -> JobReport:
    """One of them, without secrets."""
    found = view.ops.job(number)
    if found is None:
        raise missing(f"there is no job {number}")
    return found


@router.post("/{number}/reveal", responses=problems(409, 422))
def reveal(view: Here, number: Number, body: Because) -> Revealed:
    """Its payload with secrets; that it was shown is in the audit."""
    return view.ops.reveal("job", number, because=body.because)
