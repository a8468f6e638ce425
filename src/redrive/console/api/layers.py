"""Retry layers of the app."""

from __future__ import annotations

from fastapi import APIRouter

from ...ops.retry_stacks import Stack
from .word import Here, problems

router = APIRouter(prefix="/api/layers", tags=["retry layers"], responses=problems())


@router.get("")
def layers(view: Here) -> list[Stack]:
    """List durable attempts, and retries within one attempt, by job type."""
    return view.ops.retry_stacks()
