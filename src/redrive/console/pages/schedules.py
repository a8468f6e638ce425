"""Schedules: not written yet."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/schedules")
def schedules(view: Here) -> Response:
    """The page."""
    return view.page("schedules.html")
