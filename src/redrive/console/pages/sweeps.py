"""Bulk operations (sweeps): progress, outcomes, pause, resume and cancel."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ...errors import NotAllowed
from ..render.problem import missing
from ..view import Here, Id, View

router = APIRouter()
MOVES = {"running": ("pause", "cancel"), "paused": ("resume", "cancel"), "halted": ("resume", "cancel")}
"""The actions that each state allows."""
PAGE = 100
ENDED = ("done", "dead again")
"""States of replayed jobs that do not change any more."""
OF_LETTERS = ("replay", "discard")
"""Sweeps over dead letters. All others are over partitions."""


@router.get("/sweeps")
def sweeps(view: Here) -> Response:
    """Show bulk operations, newest first."""
    limit = view.number("limit", 50, most=500)
    found = view.ops.sweeps.find(limit=limit)
    nobody = view.ops.workers.missing() if any(one.state == "running" for one in found) else None
    return view.page("sweeps.html", found=found, limit=limit, now=view.ops.now(), nobody=nobody)


@router.get("/sweeps/{number}")
def sweep(view: Here, number: Id) -> Response:
    """Show one bulk operation."""
    return _shown(view, number)


@router.post("/sweeps/{number}/{verb}")
def move(view: Here, number: Id, verb: str) -> Response:
    """Pause, resume or cancel a bulk operation."""
    moves = {"pause": view.ops.sweeps.pause, "resume": view.ops.sweeps.resume, "cancel": view.ops.sweeps.cancel}
    if verb not in moves:
        raise missing(f"invalid action {verb!r}: use pause, resume or cancel")
    try:
        moves[verb](number, because=view.form.get("because", ""))
    except NotAllowed as refused:
        return _shown(view, number, str(refused), 409)
    except ValueError:
        return _shown(view, number, "enter a reason for the audit log; nothing was changed", 422)
    return view.to(f"/sweeps/{number}")


def _shown(view: View, number: int, said: str | None = None, status: int = 200) -> Response:
    after = view.number("after", 0) - 1
    report = view.ops.sweeps.get(number, after=after, limit=PAGE)
    if report is None:
        raise missing(f"bulk operation {number} does not exist")
    far = None if report.sweep.act in OF_LETTERS else view.ops.backfills.progress(number)
    nobody = view.ops.workers.missing() if report.sweep.state == "running" else None
    pending_jobs = any(name not in ENDED for name in report.jobs)
    return view.page(
        "sweep.html", code=status, far=far, nobody=nobody, report=report, one=report.sweep, now=report.now, said=said,
        after=after, page=PAGE, pending_jobs=pending_jobs, moves=MOVES.get(report.sweep.state, ()),
    )  # fmt: skip
