"""Metrics: for Prometheus, behind the same gate as everything else: give the scraper a token."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ...ops.metrics import prometheus_endpoint
from ..problem import problem

router = APIRouter()


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """The ledger as it stands, in the text of a scrape."""
    state = request.app.state
    if getattr(state, "exposed", None) is None:
        try:
            state.exposed = prometheus_endpoint(state.operated)
        except ImportError as missing:
            return problem(request, 501, str(missing))
    body, kind = state.exposed.text(request.headers.get("accept"))
    return Response(body, media_type=kind)
