"""Keys."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/keys")
def keys(view: Here) -> Response:
    """The page."""
    return view.page("keys.html")
