"""Bulk operations (sweeps): progress, outcomes, pause, resume and cancel."""

from __future__ import annotations

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from ...errors import NotAllowed
from ..render.errors import require
from ..view import CurrentView, RowId

router = APIRouter()
ACTIONS = {
    "running": ("pause", "cancel"),
    "paused": ("resume", "cancel"),
    "halted": ("resume", "cancel"),
}
"""The actions that each state allows."""
OUTCOMES_PER_PAGE = 100
ENDED_STATES = ("done", "dead again")
"""States of replayed jobs that do not change any more."""
DEAD_LETTER_ACTS = ("replay", "discard")
"""Sweeps over dead letters. All others are over partitions."""


@router.get("/sweeps")
def sweeps(view: CurrentView) -> Response:
    """Show bulk operations, newest first."""
    limit = view.number("limit", 50, maximum=500)
    operations = view.operator.sweeps.find(limit=limit)
    is_running = any(sweep.state == "running" for sweep in operations)
    return view.render(
        "sweeps.html",
        sweeps=operations,
        limit=limit,
        now=view.operator.now(),
        missing_worker=view.operator.workers.missing() if is_running else None,
    )


@router.get("/sweeps/{number}")
def sweep(view: CurrentView, number: RowId) -> Response:
    """Show one bulk operation."""
    return _render_sweep(view, number)


@router.post("/sweeps/{number}/{verb}")
def change_state(view: CurrentView, number: RowId, verb: str) -> Response:
    """Pause, resume or cancel a bulk operation."""
    operations = {
        "pause": view.operator.sweeps.pause,
        "resume": view.operator.sweeps.resume,
        "cancel": view.operator.sweeps.cancel,
    }
    if verb not in operations:
        raise HTTPException(404, f"invalid action {verb!r}: use pause, resume or cancel")
    try:
        operations[verb](number, because=view.reason())
    except NotAllowed as error:
        return _render_sweep(view, number, str(error), 409)
    except ValueError as error:
        return _render_sweep(view, number, str(error), 422)
    return view.redirect(f"/sweeps/{number}")


def _render_sweep(
    view: CurrentView, number: int, error: str | None = None, status: int = 200
) -> Response:
    after = view.number("after", 0) - 1
    report = view.operator.sweeps.get(number, after=after, limit=OUTCOMES_PER_PAGE)
    report = require(report, f"bulk operation {number} does not exist")
    sweep = report.sweep
    is_partitions = sweep.act not in DEAD_LETTER_ACTS
    return view.render(
        "sweep.html",
        status=status,
        report=report,
        sweep=sweep,
        now=report.now,
        partitions=view.operator.backfills.progress(number) if is_partitions else None,
        missing_worker=view.operator.workers.missing() if sweep.state == "running" else None,
        error=error,
        after=after,
        page_size=OUTCOMES_PER_PAGE,
        has_open_jobs=any(name not in ENDED_STATES for name in report.jobs),
        actions=ACTIONS.get(sweep.state, ()),
    )
