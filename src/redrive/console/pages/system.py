"""Endpoints for the infrastructure: liveness, readiness and Prometheus metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from ...ops.metrics import prometheus_endpoint
from ...ops.operator import Operator
from ..render.errors import problem

router = APIRouter()


@router.get("/health")
async def health() -> JSONResponse:
    """Return 200 while the process runs."""
    return JSONResponse({"status": "ok"})


@router.get("/ready")
def ready(request: Request) -> JSONResponse:
    """Return 200 if the ledger can be reached, and 503 otherwise."""
    try:
        Operator(request.app.state.target, actor="console").now()
    except Exception:  # any error means not ready; details are for signed-in users only
        return JSONResponse({"status": "the ledger cannot be reached"}, 503)
    return JSONResponse({"status": "ok"})


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """Return the metrics of the ledger in the Prometheus format."""
    state = request.app.state
    if getattr(state, "prometheus", None) is None:
        try:
            state.prometheus = prometheus_endpoint(state.target)
        except ImportError as error:
            return problem(request, 501, str(error))
    body, media_type = state.prometheus.text(request.headers.get("accept"))
    return Response(body, media_type=media_type)
