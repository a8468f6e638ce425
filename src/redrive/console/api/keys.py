"""Idempotency keys: what is stored under each, and how one is made free."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from ...ops.keys import HeldKey, KeyReport
from ..problem import missing
from .word import Because, Here, Limit, Said, Text, problems

router = APIRouter(prefix="/api/keys", tags=["keys"], responses=problems())
KeyStatus = Literal["processing", "completed", "failed"]


class Release(Because):
    """Which key."""

    key: Said
    force: bool = False
    """Even where somebody is at it right now."""


@router.get("", responses=problems(422))
def keys(
    view: Here, domain: Text = None, user: Text = None, status: KeyStatus | None = None, abandoned: bool = False,
    limit: Limit = 100,
) -> list[HeldKey]:  # fmt: skip
    """By domain, user and key."""
    return view.ops.keys(domain=domain, user=user, status=status, abandoned=abandoned, limit=limit)


@router.get("/one", responses=problems(404, 422))
def key(view: Here, key: Annotated[Said, Query()]) -> KeyReport:
    """One of them, without secrets."""
    found = view.ops.key(key)
    if found is None:
        raise missing(f"nothing is stored under {key!r}")
    return found


@router.post("/release", responses=problems(409, 422))
def release(view: Here, body: Release) -> HeldKey:
    """Forget what is known of it, so that the next caller begins anew; what it was."""
    return view.ops.release(body.key, because=body.because, force=body.force)
