"""Events: what was received, who has handled it, and handling it once more."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from ...ops.events import EventReport, ReceivedEvent
from ..problem import missing
from .word import Because, Here, Limit, Said, Text, problems

router = APIRouter(prefix="/api/events", tags=["events"], responses=problems())


class Again(Because):
    """Which event, and by which handlers; none named: by all that had it."""

    id: Said
    source: Said | None = None
    handlers: Annotated[list[Said], Field(max_length=100)] = Field(default_factory=list)


@router.get("", responses=problems(422))
def events(
    view: Here, source: Text = None, type_: Annotated[Text, Query(alias="type")] = None, limit: Limit = 100
) -> list[ReceivedEvent]:
    """The newest first."""
    return view.ops.events(source=source, of_type=type_, limit=limit)


@router.get("/one", responses=problems(404, 409, 422))
def event(view: Here, id: Annotated[Said, Query()], source: Text = None) -> EventReport:  # noqa: A002  # as it is called
    """One of them, with what each handler has made of it, without secrets."""
    found = view.ops.event(id, source=source)
    if found is None:
        raise missing(f"there is no event {id!r}")
    return found


@router.post("/replay", responses=problems(409, 422))
def replay(view: Here, body: Again) -> dict[str, str]:
    """Have it handled once more; what became of each handler."""
    return view.ops.replay_event(body.id, because=body.because, source=body.source, handlers=body.handlers)
