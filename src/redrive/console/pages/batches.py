"""Batches: not written yet."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/batches")
def batches(view: Here) -> Response:
    """The page."""
    return view.page("batches.html")
