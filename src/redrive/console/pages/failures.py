"""Failures: error groups by job type, and failed partitions."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..render.problem import missing
from ..view import Here

router = APIRouter()


@router.get("/failures")
def failures(view: Here) -> Response:
    """Show error groups, or the one of kind= and signature=."""
    kind = view.text("kind")
    if kind is not None and "signature" in view.query:
        return _one(view, kind, view.query["signature"])
    limit = view.number("limit", 30, most=200)
    found = view.ops.overview.failures(kind=kind, since=view.since(), limit=limit)
    parts = view.ops.overview.rejections(dataset=kind, since=view.since(), limit=limit)
    return view.page("failures.html", found=found, rejections=parts, limit=limit, now=view.ops.now())


def _one(view: Here, kind: str, signature: str) -> Response:
    report = view.ops.overview.failure(kind, signature)
    if report is None:
        raise missing(f"{kind}: no stored failure matches {signature!r}; groups are kept for 31 days")
    return view.page("failure.html", report=report, one=report.failure, now=report.now)
