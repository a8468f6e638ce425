"""Workers: their status and their current work."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()

MOST = 100


@router.get("/workers")
def workers(view: Here) -> Response:
    """Show workers with a recent heartbeat. all= adds the stopped ones."""
    found = view.ops.workers.find()
    everyone = view.text("all") is not None
    some = [one for one in found.workers if everyone or one.presence != "ended"]
    return view.page("workers.html", found=found, some=some[:MOST], ended=len(found.workers) - len(some), everyone=everyone)
