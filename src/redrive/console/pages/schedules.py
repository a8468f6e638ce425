"""Schedules: next and last runs."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/schedules")
def schedules(view: Here) -> Response:
    """Show all schedules."""
    found = view.ops.overview.schedules()
    nobody = view.ops.workers.missing() if any(one.of == "dataset" for one in found) else None
    return view.page("schedules.html", found=found, nobody=nobody, now=view.ops.now())
