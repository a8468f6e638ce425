"""Events: list received events, show the results of their handlers, and replay them."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..queries import EventQuery
from ..render.command import PLACEHOLDER, command
from ..render.errors import require
from ..view import CurrentView

router = APIRouter()


@router.get("/events")
def events(view: CurrentView) -> Response:
    """Show events, newest first."""
    query = view.read_query(EventQuery)
    return view.render(
        "events.html",
        events=view.operator.events.find(
            source=query.source, of_type=query.type, limit=query.limit
        ),
        query=query,
        now=view.operator.now(),
    )


@router.get("/events/show")
def event(view: CurrentView) -> Response:
    """Show one event. The id is in the query, because it may contain any character."""
    return _render_event(view, view.query.get("id", ""), view.text("source"))


@router.post("/events/replay")
def replay(view: CurrentView) -> Response:
    """Replay an event to its handlers."""
    event_id, source = view.form.get("id", ""), view.form.get("source") or None
    handlers = view.form.get("handlers", "").splitlines()
    try:
        because = view.reason()
        outcomes = view.operator.events.replay(
            event_id, because=because, source=source, handlers=handlers
        )
    except ValueError as error:
        return _render_event(view, event_id, source, str(error), 422)
    results = "; ".join(f"{handler}: {outcome}" for handler, outcome in outcomes.items())
    flash = results or "The event has no handlers."
    return view.redirect("/events/show", id=event_id, source=source, flash=flash)


def _render_event(
    view: CurrentView,
    event_id: str,
    source: str | None,
    error: str | None = None,
    status: int = 200,
) -> Response:
    missing = f"event {event_id!r} does not exist" + (f" in source {source}" if source else "")
    report = require(view.operator.events.get(event_id, source=source), missing)
    command_line = command(
        "events", "replay", event_id=event_id, source=report.event.source, because=PLACEHOLDER
    )
    return view.render(
        "event.html",
        status=status,
        report=report,
        event=report.event,
        handlers=report.handlers,
        now=report.now,
        error=error,
        command_line=command_line,
        revealed=None,
        reveal_command=None,
    )
