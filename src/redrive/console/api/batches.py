"""Batches: count items, list given-up items and reopen them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from ...ops.batches import Batch, GivenUp
from ..queries import BatchItemQuery, Since, Text
from ..view import CurrentView
from .schema import Because, Maximum, Words, check_maximum, problems

router = APIRouter(prefix="/api/batches", tags=["batches"], responses=problems())


class ReopenBody(Because):
    """The items of a batch to reopen."""

    batch: Words
    items: Annotated[list[Words], Field(max_length=10_000)] = Field(default_factory=list)
    reason: Text = None
    since: Since = None
    limit: Annotated[int, Field(ge=1, le=100_000)] = 100
    max: Maximum | None = None
    """Change nothing if more items match. Required unless `items` names them."""


@dataclass(frozen=True, slots=True)
class ReopenResult:
    """Reopened items, and skipped items with the reason."""

    opened: tuple[str, ...]
    skipped: dict[str, str]


@router.get("")
def batches(view: CurrentView) -> list[Batch]:
    """Count the items of every batch by state."""
    return view.operator.batches.find()


@router.get("/giveups", responses=problems(422))
def giveups(view: CurrentView, query: Annotated[BatchItemQuery, Query()]) -> list[GivenUp]:
    """List given-up items, newest first."""
    return view.operator.batches.given_up(**dict(query))


@router.post("/reopen", responses=problems(409, 422))
def reopen(view: CurrentView, body: ReopenBody) -> ReopenResult:
    """Reopen given-up items, so that they are sent again."""
    plan = view.operator.batches.plan_reopen(
        body.batch, items=body.items, reason=body.reason, since=body.since, limit=body.limit
    )
    check_maximum(plan.count, body.max, named=body.items)
    opened: list[str] = []
    skipped = dict(plan.skipped)
    for step in view.operator.batches.reopen(plan, because=body.because):
        opened += step.done
        skipped |= step.skipped
    return ReopenResult(tuple(opened), skipped)
