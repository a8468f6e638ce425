"""Backfills: a range of a dataset's days, planned and begun. How far one is: /api/sweeps; its share: /api/partitions."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from ...errors import NotAllowed
from ...ops.datasets import label
from ...ops.plan import Plan
from ...ops.sweep import Sweep
from .dead import Planned
from .word import Body, Here, Said, problems

router = APIRouter(prefix="/api/backfills", tags=["partitions"], responses=problems())


class Range(Body):
    """Which days of which dataset, for whom; and how."""

    source: Said
    query: Said
    since: date
    until: date
    customers: Annotated[list[Said], Field(max_length=1000)] = Field(default_factory=list)
    """None: all that the app's dataset has."""
    share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    """Its part of all work while others wait too."""
    again: bool = False
    """Also what is accepted already."""
    clear_terminal: bool = False


class Begun(Range):
    """And why."""

    because: Said
    max: Annotated[int, Field(ge=0)]
    """Do nothing if there are more partitions."""
    seen: str | None = None
    rate: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    canary: Annotated[int, Field(ge=0, le=1_000_000)] = 0


@router.post("/plan", responses=problems(409, 422))
def plan(view: Here, body: Range) -> Planned:
    """What would be extracted. Leaves no trace."""
    return Planned.of(_made(view, body))


@router.post("", responses=problems(409, 422))
def begin(view: Here, body: Begun) -> Sweep:
    """Begin it: a sweep, that workers carry out."""
    made = _made(view, body)
    if made.count > body.max:
        raise NotAllowed(f"{made.count:,} match, and max says {body.max:,}: nothing was done")
    return view.ops.begin(made, because=body.because, seen=body.seen, rate=body.rate, canary=body.canary)


def _made(view: Here, body: Range) -> Plan:
    return view.ops.backfill(
        label(body.source, body.query), body.since, body.until, customers=body.customers or None, share=body.share,
        again=body.again, clear_terminal=body.clear_terminal,
    )  # fmt: skip
