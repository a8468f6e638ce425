"""Health: whether the process runs, and whether it reaches its ledger. Reveals nothing else."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from ...ops.operator import Operator

router = APIRouter()


@router.get("/health")
async def health() -> JSONResponse:
    """Return 200 while the process runs."""
    return JSONResponse({"status": "ok"})


@router.get("/ready")
def ready(request: Request) -> JSONResponse:
    """Return 200 if the ledger can be reached, and 503 otherwise."""
    try:
        Operator(request.app.state.operated, actor="console").now()
    except Exception:  # any error means not ready; details are for signed-in users only
        return JSONResponse({"status": "the ledger cannot be reached"}, 503)
    return JSONResponse({"status": "ok"})
