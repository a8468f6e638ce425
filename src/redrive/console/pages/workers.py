"""Workers: who is there, and what each has in its hands."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()

MOST = 100


@router.get("/workers")
def workers(view: Here) -> Response:
    """The page."""
    found = view.ops.workers()
    everyone = view.text("all") is not None
    some = [one for one in found.workers if everyone or one.presence != "ended"]
    return view.page("workers.html", found=found, some=some[:MOST], ended=len(found.workers) - len(some), everyone=everyone)
