"""Log records of jobs, decisions and rejected partitions."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()

EVENTS = ("", "submitted", "failed", "lost", "returned", "done", "dead", "rejected", "decided")


@router.get("/journal")
def journal(view: Here) -> Response:
    """Show log records, newest first."""
    kind, event = view.text("kind"), view.text("event")
    limit = view.number("limit", 100, most=200)
    found = view.ops.overview.journal(kind=kind, events=() if event is None else (event,), since=view.since(), limit=limit)
    return view.page("journal.html", found=found, events=EVENTS, limit=limit, now=view.ops.now())
