"""Jobs."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/jobs")
def jobs(view: Here) -> Response:
    """The page."""
    return view.page("jobs.html")
