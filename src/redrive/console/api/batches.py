"""Batches: items that were given up, opened again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter
from pydantic import AwareDatetime, Field

from ...errors import NotAllowed
from .word import Because, Here, Said, problems

router = APIRouter(prefix="/api/batches", tags=["batches"], responses=problems())


class Again(Because):
    """Which items of which batch."""

    batch: Said
    items: Annotated[list[Said], Field(max_length=10_000)] = Field(default_factory=list)
    reason: Said | None = None
    since: AwareDatetime | None = None
    limit: Annotated[int, Field(ge=1, le=100_000)] = 100
    max: Annotated[int, Field(ge=0)] | None = None
    """Do nothing if there are more. Asked for unless they are named one by one."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What was opened, and what was left alone, and why."""

    opened: tuple[str, ...]
    skipped: dict[str, str]


@router.post("/reopen", responses=problems(409, 422))
def reopen(view: Here, body: Again) -> Opened:
    """Let them be sent again."""
    plan = view.ops.reopen(body.batch, items=body.items, reason=body.reason, since=body.since, limit=body.limit)
    if not body.items:
        if body.max is None:
            raise ValueError(f"say max, the most you want to open: {plan.count:,} match. Nothing was done")
        if plan.count > body.max:
            raise NotAllowed(f"{plan.count:,} match, and max says {body.max:,}: nothing was done")
    opened: list[str] = []
    skipped = dict(plan.skipped)
    for step in view.ops.reopening(plan, because=body.because):
        opened += step.done
        skipped |= step.skipped
    return Opened(tuple(opened), skipped)
