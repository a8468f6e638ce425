"""Metrics for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ...ops.metrics.collect import prometheus_endpoint
from ..render.problem import problem

router = APIRouter()


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """Return the metrics of the ledger in the Prometheus format."""
    state = request.app.state
    if getattr(state, "exposed", None) is None:
        try:
            state.exposed = prometheus_endpoint(state.operated)
        except ImportError as missing:
            return problem(request, 501, str(missing))
    body, kind = state.exposed.text(request.headers.get("accept"))
    return Response(body, media_type=kind)
