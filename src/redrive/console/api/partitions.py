"""Partitions: status, scheduling, and extracting them again."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from ...errors import NotAllowed
from ...ops.partitions.calendar import Calendar
from ...ops.partitions.history import Explained, Facts, History
from ...ops.partitions.selection import selected
from ...ops.plans.plan import Plan
from ...ops.sweeps import Sweep
from ..render.problem import missing
from .dead import Planned
from .word import Because, Here, Limit, Number, Said, Text, problems

router = APIRouter(prefix="/api/partitions", tags=["partitions"], responses=problems())
Standing = Literal["pending", "success", "failed", "refresh_failed", "terminal"]
Act = Literal["retry", "reprocess", "revalidate"]
Key = Annotated[Said, Query(description="source/customer/query/date")]


class Chosen(Because):
    """The selected partitions, the reason and the options."""

    keys: Annotated[list[Said], Field(max_length=1000)] = Field(default_factory=list)
    source: Said | None = None
    query: Said | None = None
    customers: Annotated[list[Said], Field(max_length=1000)] = Field(default_factory=list)
    since: date | None = None
    until: date | None = None
    status: Standing | None = None
    max: Annotated[int, Field(ge=0)] | None = None
    """Change nothing if more partitions match. Required unless `keys` names them."""
    seen: str | None = None
    clear_terminal: bool = False
    """Retry: include given-up (terminal) partitions."""
    without_raw: bool = False
    """Retry: include partitions without raw data, which are skipped otherwise."""
    rate: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    canary: Annotated[int, Field(ge=0, le=1_000_000)] = 0


@router.get("", responses=problems(422))
def partitions(
    view: Here, source: Text = None, query: Text = None, customer: Text = None, since: date | None = None,
    until: date | None = None, status: Standing | None = None, after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    limit: Limit = 100,
) -> list[Facts]:  # fmt: skip
    """List partitions. `after` is the id of the last one of the previous page."""
    customers = () if customer is None else (customer,)
    some = selected(source=source, query=query, customers=customers, since=since, until=until, status=status)
    return view.ops.partitions.inspect(some, after=after, limit=limit)


@router.get("/calendar", responses=problems(422))
def calendar(
    view: Here, since: date | None = None, until: date | None = None, source: Text = None, query: Text = None
) -> Calendar:
    """Count the partitions of each day by dataset and status."""
    return view.ops.partitions.calendar(since, until, source=source, query=query)


@router.get("/one", responses=problems(404, 422))
def one(view: Here, key: Key) -> History:
    """Show one partition with all attempts, newest first."""
    found = view.ops.partitions.history(key)
    if found is None:
        raise missing(f"partition {key!r} does not exist")
    return found


@router.get("/explain", responses=problems(422))
def explain(view: Here, key: Key) -> Explained:
    """Explain the status of a partition: why it is not running, and possible actions."""
    return view.ops.partitions.explain(key)


@router.post("/plan/{act}", responses=problems(409, 422))
def plan(view: Here, act: Act, body: Chosen) -> Planned:
    """Plan an action. Changes nothing, and records no reason."""
    return Planned.of(_made(view, act, body))


@router.post("/{act}", responses=problems(409, 422))
def apply(view: Here, act: Act, body: Chosen) -> Sweep:
    """Carry out an action as a sweep, which workers process."""
    made = _made(view, act, body)
    if not body.keys:
        if body.max is None:
            raise ValueError(f"max: missing; {made.count:,} match, so set max to the number you expect; nothing was changed")
        if made.count > body.max:
            raise NotAllowed(f"{made.count:,} match, more than max={body.max:,}; nothing was changed")
    return view.ops.begin(
        made, because=body.because, seen=body.seen, rate=body.rate, canary=body.canary, without_raw=body.without_raw
    )  # fmt: skip


@router.post("/backfills/{number}/share", responses=problems(409, 422))
def share(view: Here, number: Number, percent: Annotated[float, Query(gt=0, le=100)], body: Because) -> Sweep:
    """Change the share of a backfill. Applies from the next claim."""
    return view.ops.backfills.set_share(number, percent / 100, because=body.because)


def _made(view: Here, act: Act, body: Chosen) -> Plan:
    narrowed: dict[str, Any] = {
        "source": body.source, "query": body.query, "customers": body.customers, "since": body.since, "until": body.until,
        "status": body.status,
    }  # fmt: skip
    some = selected(body.keys, **{name: value for name, value in narrowed.items() if value})
    if act == "retry":
        return view.ops.partitions.retry(some, clear_terminal=body.clear_terminal)
    return (view.ops.partitions.reprocess if act == "reprocess" else view.ops.partitions.revalidate)(some)
