"""Failures: not written yet."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/failures")
def failures(view: Here) -> Response:
    """The page."""
    return view.page("failures.html")
