"""Events: list received events, show the results of their handlers, and replay them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from ...ops.events import EventReport, ReceivedEvent
from ..queries import EventQuery, Text
from ..render.errors import require
from ..view import CurrentView
from .schema import Because, Words, problems

router = APIRouter(prefix="/api/events", tags=["events"], responses=problems())


class EventReplayBody(Because):
    """The event and the handlers to replay. No handlers: all handlers of the event."""

    id: Words
    source: Words | None = None
    handlers: Annotated[list[Words], Field(max_length=100)] = Field(default_factory=list)


@router.get("", responses=problems(422))
def events(view: CurrentView, query: Annotated[EventQuery, Query()]) -> list[ReceivedEvent]:
    """List events, newest first."""
    return view.operator.events.find(source=query.source, of_type=query.type, limit=query.limit)


@router.get("/one", responses=problems(404, 409, 422))
def event(
    view: CurrentView,
    id: Annotated[Words, Query()],  # noqa: A002  # the name in the URL
    source: Annotated[Text, Query()] = None,
) -> EventReport:
    """Show one event with the results of its handlers, and with secrets masked."""
    return require(view.operator.events.get(id, source=source), f"event {id!r} does not exist")


@router.post("/replay", responses=problems(409, 422))
def replay(view: CurrentView, body: EventReplayBody) -> dict[str, str]:
    """Replay an event. Returns the outcome for each handler."""
    return view.operator.events.replay(
        body.id, because=body.because, source=body.source, handlers=body.handlers
    )
