"""Jobs: of every kind, by state; and one of them with all its attempts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from ...ops.events import event_of
from ...ops.ledger import STATES
from ..problem import missing
from ..view import Here, Id, View

router = APIRouter()


@router.get("/jobs")
def jobs(view: Here) -> Response:
    """The list: waiting ones as they are due, ended ones the last first; without a state the newest first."""
    asked = view.text("state")
    state: Any = asked if asked in STATES else None
    kind, limit = view.text("kind"), view.number("limit", 50, most=500)
    found = view.ops.jobs(state=state, kind=kind, limit=limit)
    return view.page(
        "jobs.html", found=found, state=state, kind=kind, limit=limit, states=STATES, kinds=list(view.ops.counts()),
        now=view.ops.now(),
    )  # fmt: skip


@router.get("/jobs/{number}")
def job(view: Here, number: Id) -> Response:
    """One of them."""
    return _shown(view, number)


@router.post("/jobs/{number}/reveal")
def reveal(view: Here, number: Id) -> Response:
    """Its payload with secrets, once; in the audit."""
    return _shown(view, number, view.ops.reveal("job", number, because=view.form.get("because", "")))


def _shown(view: View, number: int, revealed: Any = None) -> Response:
    report = view.ops.job(number)
    if report is None:
        raise missing(f"There is no job {number}. What was done long ago is forgotten.")
    event = event_of(report.job.key)
    handled = None if event is None else view.ops.event(event[1], source=event[0])
    return view.page("job.html", report=report, one=report.job, now=report.now, revealed=revealed, handled=handled)
