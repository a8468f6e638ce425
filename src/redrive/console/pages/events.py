"""Events: received events, the results of their handlers, and replays."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..render.command import command
from ..render.problem import missing
from ..view import Here, View

router = APIRouter()


@router.get("/events")
def events(view: Here) -> Response:
    """Show events, newest first."""
    source, of_type, limit = view.text("source"), view.text("type"), view.number("limit", 50, most=500)
    found = view.ops.events.find(source=source, of_type=of_type, limit=limit)
    return view.page("events.html", found=found, source=source, of_type=of_type, limit=limit, now=view.ops.now())


@router.get("/events/show")
def event(view: Here) -> Response:
    """Show one event. The id is in the query, because it may contain any character."""
    return _shown(view, view.query.get("id", ""), view.text("source"))


@router.post("/events/replay")
def replay(view: Here) -> Response:
    """Replay an event to its handlers."""
    event_id, source = view.form.get("id", ""), view.form.get("source") or None
    handlers = view.form.get("handlers", "").splitlines()
    because = view.form.get("because", "")
    if not because.strip():
        return _shown(view, event_id, source, "enter a reason for the audit log; nothing was changed", 422)
    try:
        done = view.ops.events.replay(event_id, because=because, source=source, handlers=handlers)
    except ValueError as wrong:
        return _shown(view, event_id, source, str(wrong), 422)
    said = "; ".join(f"{handler}: {became}" for handler, became in done.items()) or "The event has no handlers."
    return view.to("/events/show", id=event_id, source=source, said=said)


def _shown(view: View, event_id: str, source: str | None, said: str | None = None, status: int = 200) -> Response:
    report = view.ops.events.get(event_id, source=source)
    if report is None:
        raise missing(f"event {event_id!r} does not exist" + (f" in source {source}" if source else ""))
    line = command("events", "replay", event_id=event_id, source=report.event.source, because="...")
    return view.page(
        "event.html", code=status, report=report, one=report.event, now=report.now, handlers=report.handlers, said=said,
        line=line, revealed=None, reveals=False,
    )  # fmt: skip
