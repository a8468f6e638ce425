"""Schedules: next and last runs."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/schedules")
def schedules(view: Here) -> Response:
    """Show all schedules."""
    return view.page("schedules.html", found=view.ops.schedules(), now=view.ops.now())
