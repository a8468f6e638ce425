"""Retry layers of the app: attempts and worst-case durations."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/layers")
def layers(view: Here) -> Response:
    """Show the retry layers of every job type."""
    return view.page("layers.html", stacks=view.ops.retry_stacks())
