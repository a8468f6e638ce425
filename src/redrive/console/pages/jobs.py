"""Jobs: list them, and show one with its attempts."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ...ops.dead_letters.model import Revealed
from ...ops.events import event_of
from ...ops.ledger import STATES
from ..queries import JobQuery
from ..render.command import PLACEHOLDER, command
from ..render.errors import require
from ..view import CurrentView, RowId

router = APIRouter()


@router.get("/jobs")
def jobs(view: CurrentView) -> Response:
    """Show jobs.

    Queued jobs are sorted by due time, and ended jobs latest first. Without a state, the newest
    jobs are first.
    """
    query = view.read_query(JobQuery)
    return view.render(
        "jobs.html",
        jobs=view.operator.jobs.find(**dict(query)),
        query=query,
        states=STATES,
        kinds=list(view.operator.jobs.counts()),
        now=view.operator.now(),
    )


@router.get("/jobs/{number}")
def job(view: CurrentView, number: RowId) -> Response:
    """Show one job."""
    return _render_job(view, number)


@router.post("/jobs/{number}/reveal")
def reveal(view: CurrentView, number: RowId) -> Response:
    """Show the payload with secrets once, and record that in the audit log."""
    because = view.form.get("because", "")
    return _render_job(view, number, view.operator.jobs.reveal(number, because=because))


def _render_job(view: CurrentView, number: int, revealed: Revealed | None = None) -> Response:
    missing = f"job {number} does not exist; old finished jobs are deleted"
    report = require(view.operator.jobs.get(number), missing)
    event = event_of(report.job.key)
    return view.render(
        "job.html",
        report=report,
        job=report.job,
        now=report.now,
        revealed=revealed,
        reveal_command=command("jobs", "show", number, raw=True, because=PLACEHOLDER),
        event_report=None if event is None else view.operator.events.get(event[1], source=event[0]),
    )
