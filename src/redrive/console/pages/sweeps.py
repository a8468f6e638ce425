"""Sweeps."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/sweeps")
def sweeps(view: Here) -> Response:
    """The page."""
    return view.page("sweeps.html")
