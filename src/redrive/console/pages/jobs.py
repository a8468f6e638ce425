"""Jobs: list them, and show one with its attempts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from ...ops.events import event_of
from ...ops.ledger import STATES
from ..render.problem import missing
from ..view import Here, Id, View

router = APIRouter()


@router.get("/jobs")
def jobs(view: Here) -> Response:
    """Show jobs: queued ones by due time, ended ones latest first, and without a state the newest first."""
    asked = view.text("state")
    state: Any = asked if asked in STATES else None
    kind, limit = view.text("kind"), view.number("limit", 50, most=500)
    found = view.ops.jobs.find(state=state, kind=kind, limit=limit)
    return view.page(
        "jobs.html", found=found, state=state, kind=kind, limit=limit, states=STATES, kinds=list(view.ops.jobs.counts()),
        now=view.ops.now(),
    )  # fmt: skip


@router.get("/jobs/{number}")
def job(view: Here, number: Id) -> Response:
    """Show one job."""
    return _shown(view, number)


@router.post("/jobs/{number}/reveal")
def reveal(view: Here, number: Id) -> Response:
    """Show the payload with secrets once, and record that in the audit log."""
    return _shown(view, number, view.ops.jobs.reveal(number, because=view.form.get("because", "")))


def _shown(view: View, number: int, revealed: Any = None) -> Response:
    report = view.ops.jobs.get(number)
    if report is None:
        raise missing(f"job {number} does not exist; old finished jobs are deleted")
    event = event_of(report.job.key)
    handled = None if event is None else view.ops.events.get(event[1], source=event[0])
    return view.page("job.html", report=report, one=report.job, now=report.now, revealed=revealed, handled=handled)
