"""Idempotency records: list, show and release them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ...ops.keys import HeldKey, KeyReport
from ..queries import KeyQuery
from ..render.errors import require
from ..view import CurrentView
from .schema import Because, Words, problems

router = APIRouter(prefix="/api/keys", tags=["idempotency records"], responses=problems())


class ReleaseBody(Because):
    """The key to release."""

    key: Words
    force: bool = False
    """Release the key also while an operation is in progress."""


@router.get("", responses=problems(422))
def keys(view: CurrentView, query: Annotated[KeyQuery, Query()]) -> list[HeldKey]:
    """List idempotency records by domain, user and key."""
    return view.operator.keys.find(**query.arguments())


@router.get("/one", responses=problems(404, 422))
def key(view: CurrentView, key: Annotated[Words, Query()]) -> KeyReport:
    """Show one idempotency record, with secrets masked."""
    return require(view.operator.keys.get(key), f"idempotency record {key!r} does not exist")


@router.post("/release", responses=problems(409, 422))
def release(view: CurrentView, body: ReleaseBody) -> HeldKey:
    """Delete the stored result, so that the next caller runs the operation again.

    Returns the deleted record.
    """
    return view.operator.keys.release(body.key, because=body.because, force=body.force)
