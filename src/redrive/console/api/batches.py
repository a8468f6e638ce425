"""Batches: reopen given-up items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter
from pydantic import AwareDatetime, Field

from ...errors import NotAllowed
from .word import Because, Here, Said, problems

router = APIRouter(prefix="/api/batches", tags=["batches"], responses=problems())


class Again(Because):
    """The items of a batch to reopen."""

    batch: Said
    items: Annotated[list[Said], Field(max_length=10_000)] = Field(default_factory=list)
    reason: Said | None = None
    since: AwareDatetime | None = None
    limit: Annotated[int, Field(ge=1, le=100_000)] = 100
    max: Annotated[int, Field(ge=0)] | None = None
    """Change nothing if more items match. Required unless `items` names them."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Reopened items, and skipped items with the reason."""

    opened: tuple[str, ...]
    skipped: dict[str, str]


@router.post("/reopen", responses=problems(409, 422))
def reopen(view: Here, body: Again) -> Opened:
    """Reopen given-up items, so that they are sent again."""
    plan = view.ops.batches.plan_reopen(body.batch, items=body.items, reason=body.reason, since=body.since, limit=body.limit)
    if not body.items:
        if body.max is None:
            raise ValueError(f"max: missing; {plan.count:,} match, so set max to the number you expect; nothing was changed")
        if plan.count > body.max:
            raise NotAllowed(f"{plan.count:,} match, more than max={body.max:,}; nothing was changed")
    opened: list[str] = []
    skipped = dict(plan.skipped)
    for step in view.ops.batches.reopen(plan, because=body.because):
        opened += step.done
        skipped |= step.skipped
    return Opened(tuple(opened), skipped)
