"""Schedules: what fires by itself."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/schedules")
def schedules(view: Here) -> Response:
    """The page."""
    return view.page("schedules.html", found=view.ops.schedules(), now=view.ops.now())
