"""Backfills: plan and start them. Progress is at /api/sweeps, and the share at /api/partitions."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from ...errors import NotAllowed
from ...ops.partitions.datasets import label
from ...ops.plans.plan import Plan
from ...ops.sweeps import Sweep
from .dead import Planned
from .word import Body, Here, Said, problems

router = APIRouter(prefix="/api/backfills", tags=["partitions"], responses=problems())


class Range(Body):
    """The days of a dataset, the customers and the options."""

    source: Said
    query: Said
    since: date
    until: date
    customers: Annotated[list[Said], Field(max_length=1000)] = Field(default_factory=list)
    """Empty: all customers of the dataset in the app."""
    share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    """Share of worker capacity while other work is queued."""
    again: bool = False
    """Include partitions that are already accepted."""
    clear_terminal: bool = False


class Begun(Range):
    """A backfill with its reason and its limits."""

    because: Said
    max: Annotated[int, Field(ge=0)]
    """Change nothing if there are more partitions."""
    seen: str | None = None
    rate: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    canary: Annotated[int, Field(ge=0, le=1_000_000)] = 0


@router.post("/plan", responses=problems(409, 422))
def plan(view: Here, body: Range) -> Planned:
    """Plan a backfill. Changes nothing."""
    return Planned.of(_made(view, body))


@router.post("", responses=problems(409, 422))
def begin(view: Here, body: Begun) -> Sweep:
    """Start a backfill as a sweep, which workers carry out."""
    made = _made(view, body)
    if made.count > body.max:
        raise NotAllowed(f"{made.count:,} match, more than max={body.max:,}; nothing was changed")
    return view.ops.begin(made, because=body.because, seen=body.seen, rate=body.rate, canary=body.canary)


def _made(view: Here, body: Range) -> Plan:
    return view.ops.backfills.plan(
        label(body.source, body.query), body.since, body.until, customers=body.customers or None, share=body.share,
        again=body.again, clear_terminal=body.clear_terminal,
    )  # fmt: skip
