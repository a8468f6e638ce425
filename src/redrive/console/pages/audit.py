"""Audit."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/audit")
def audit(view: Here) -> Response:
    """The page."""
    return view.page("audit.html")
