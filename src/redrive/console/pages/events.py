"""Events."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/events")
def events(view: Here) -> Response:
    """The page."""
    return view.page("events.html")
