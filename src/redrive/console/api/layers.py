"""Layers: what tries again in the app."""

from __future__ import annotations

from fastapi import APIRouter

from ...ops.stacks import Stack
from .word import Here, problems

router = APIRouter(prefix="/api/layers", tags=["layers"], responses=problems())


@router.get("")
def layers(view: Here) -> list[Stack]:
    """Of each kind: durable attempts, and what its function tries again by itself."""
    return view.ops.stacks()
