"""Layers."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/layers")
def layers(view: Here) -> Response:
    """The page."""
    return view.page("layers.html")
