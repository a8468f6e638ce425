"""Layers: what tries again in this app, how often and how long at worst, and whether anything multiplies."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/layers")
def layers(view: Here) -> Response:
    """Kind by kind."""
    return view.page("layers.html", stacks=view.ops.stacks())
