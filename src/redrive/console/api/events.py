"""Events: received events, the results of their handlers, and replays."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from ...ops.events import EventReport, ReceivedEvent
from ..render.problem import missing
from .word import Because, Here, Limit, Said, Text, problems

router = APIRouter(prefix="/api/events", tags=["events"], responses=problems())


class Again(Because):
    """The event and the handlers to replay. No handlers: all handlers of the event."""

    id: Said
    source: Said | None = None
    handlers: Annotated[list[Said], Field(max_length=100)] = Field(default_factory=list)


@router.get("", responses=problems(422))
def events(
    view: Here, source: Text = None, type_: Annotated[Text, Query(alias="type")] = None, limit: Limit = 100
) -> list[ReceivedEvent]:
    """List events, newest first."""
    return view.ops.events.find(source=source, of_type=type_, limit=limit)


@router.get("/one", responses=problems(404, 409, 422))
def event(view: Here, id: Annotated[Said, Query()], source: Text = None) -> EventReport:  # noqa: A002  # as it is called
    """Show one event with the results of its handlers, and with secrets masked."""
    found = view.ops.events.get(id, source=source)
    if found is None:
        raise missing(f"event {id!r} does not exist")
    return found


@router.post("/replay", responses=problems(409, 422))
def replay(view: Here, body: Again) -> dict[str, str]:
    """Replay an event. Returns the outcome for each handler."""
    return view.ops.events.replay(body.id, because=body.because, source=body.source, handlers=body.handlers)
