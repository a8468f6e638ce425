"""Idempotency records: list, show and release them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from ...ops.keys import HeldKey, KeyReport
from ..render.problem import missing
from .word import Because, Here, Limit, Said, Text, problems

router = APIRouter(prefix="/api/keys", tags=["idempotency records"], responses=problems())
KeyStatus = Literal["processing", "completed", "failed"]


class Release(Because):
    """The key to release."""

    key: Said
    force: bool = False
    """Release the key also while an operation is in progress."""


@router.get("", responses=problems(422))
def keys(
    view: Here, domain: Text = None, user: Text = None, status: KeyStatus | None = None, abandoned: bool = False,
    limit: Limit = 100,
) -> list[HeldKey]:  # fmt: skip
    """List idempotency records by domain, user and key."""
    return view.ops.keys.find(domain=domain, user=user, status=status, abandoned=abandoned, limit=limit)


@router.get("/one", responses=problems(404, 422))
def key(view: Here, key: Annotated[Said, Query()]) -> KeyReport:
    """Show one idempotency record, with secrets masked."""
    found = view.ops.keys.get(key)
    if found is None:
        raise missing(f"idempotency record {key!r} does not exist")
    return found


@router.post("/release", responses=problems(409, 422))
def release(view: Here, body: Release) -> HeldKey:
    """Delete the stored result, so that the next caller runs the operation again. Returns the deleted record."""
    return view.ops.keys.release(body.key, because=body.because, force=body.force)
