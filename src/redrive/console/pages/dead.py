"""Dead letters."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/dead")
def dead(view: Here) -> Response:
    """The page."""
    return view.page("dead.html")
