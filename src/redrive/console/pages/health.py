"""Health: for those who look after processes: is it there, and can it reach its ledger. Says nothing else, to anybody."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from ...ops.operator import Operator

router = APIRouter()


@router.get("/health")
async def health() -> JSONResponse:
    """It is there."""
    return JSONResponse({"status": "ok"})


@router.get("/ready")
def ready(request: Request) -> JSONResponse:
    """It reaches its ledger."""
    try:
        Operator(request.app.state.operated, actor="console").now()
    except Exception:  # whatever it is, it is not ready; a page says more to those who may know
        return JSONResponse({"status": "the ledger cannot be reached"}, 503)
    return JSONResponse({"status": "ok"})
