"""Partitions and backfills: status, explanation, and plans to extract partitions again."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from ...ops import Sweep
from ...ops.partitions.calendar import Calendar, CustomerGrid
from ...ops.partitions.datasets import label
from ...ops.partitions.history import Explained, History, PartitionView
from ...ops.partitions.selection import Standing, select_partitions
from ...ops.plans.plan import Plan
from ..queries import CalendarQuery, CustomerQuery, PartitionQuery
from ..render.errors import require
from ..view import CurrentView, RowId
from .dead_letters import PlanSummary
from .schema import Because, Canary, Maximum, Rate, RequestBody, Words, check_maximum, problems

router = APIRouter(prefix="/api/partitions", tags=["partitions"], responses=problems())
backfills = APIRouter(prefix="/api/backfills", tags=["partitions"], responses=problems())
Action = Literal["retry", "reprocess", "revalidate"]
PartitionKey = Annotated[Words, Query(description="source/customer/query/date")]
Customers = Annotated[list[Words], Field(max_length=1000)]


class PartitionList(PartitionQuery):
    """The partitions to list."""

    after: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0


class PartitionActionBody(CalendarQuery, Because):
    """The selected partitions, the reason and the options."""

    keys: Annotated[list[Words], Field(max_length=1000)] = Field(default_factory=list)
    customers: Customers = Field(default_factory=list)
    status: Standing | None = None
    max: Maximum | None = None
    """Change nothing if more partitions match. Required unless `keys` names them."""
    seen: str | None = None
    clear_terminal: bool = False
    """Retry: include given-up (terminal) partitions."""
    include_marked: bool = False
    """Retry: include those that an operator marked as given up. `keys` always includes them."""
    without_raw: bool = False
    """Retry: include partitions without raw data, which are skipped otherwise."""
    rate: Rate | None = None
    canary: Canary = 0


class BackfillPlanBody(RequestBody):
    """The days of a dataset, the customers and the options."""

    source: Words
    query: Words
    since: date
    until: date
    customers: Customers = Field(default_factory=list)
    """Empty: all customers of the dataset in the app."""
    share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    """Share of worker capacity while other work is queued."""
    again: bool = False
    """Include partitions that are already accepted."""
    clear_terminal: bool = False


class BackfillBody(BackfillPlanBody, Because):
    """A backfill with its reason and its limits."""

    max: Maximum
    """Change nothing if there are more partitions."""
    seen: str | None = None
    rate: Rate | None = None
    canary: Canary = 0


@router.get("", responses=problems(422))
def partitions(view: CurrentView, query: Annotated[PartitionList, Query()]) -> list[PartitionView]:
    """List partitions. `after` is the id of the last one of the previous page."""
    return view.operator.partitions.inspect(query.select(), after=query.after, limit=query.limit)


@router.get("/calendar", responses=problems(422))
def calendar(view: CurrentView, query: Annotated[CalendarQuery, Query()]) -> Calendar:
    """Count the partitions of each day by dataset and status."""
    return view.operator.partitions.calendar(
        query.since, query.until, source=query.source, query=query.query
    )


@router.get("/customers", responses=problems(422))
def customers(view: CurrentView, query: Annotated[CustomerQuery, Query()]) -> CustomerGrid:
    """Return the status of each customer of a dataset on each day.

    `after` is the last customer of the previous page (`next_after`).
    """
    if query.source is None or query.query is None:
        raise ValueError("no dataset: specify source and query")
    return view.operator.partitions.customers(
        query.source,
        query.query,
        query.since,
        query.until,
        after=query.after or "",
        limit=query.limit,
    )


@router.get("/one", responses=problems(404, 422))
def partition(view: CurrentView, key: PartitionKey) -> History:
    """Show one partition with all attempts, newest first."""
    return require(view.operator.partitions.history(key), f"partition {key!r} does not exist")


@router.get("/explain", responses=problems(422))
def explain(view: CurrentView, key: PartitionKey) -> Explained:
    """Explain the status of a partition: why it is not running, and possible actions."""
    return view.operator.partitions.explain(key)


@router.post("/plan/{act}", responses=problems(409, 422))
def plan(view: CurrentView, act: Action, body: PartitionActionBody) -> PlanSummary:
    """Plan an action. Changes nothing, and records no reason."""
    return PlanSummary.of(_plan_action(view, act, body))


@router.post("/{act}", responses=problems(409, 422))
def apply(view: CurrentView, act: Action, body: PartitionActionBody) -> Sweep:
    """Carry out an action as a sweep, which workers process."""
    plan = _plan_action(view, act, body)
    check_maximum(plan.count, body.max, named=body.keys)
    return view.operator.begin(
        plan,
        because=body.because,
        seen=body.seen,
        rate=body.rate,
        canary=body.canary,
        without_raw=body.without_raw,
    )


@router.post("/backfills/{number}/share", responses=problems(409, 422))
def share(
    view: CurrentView, number: RowId, percent: Annotated[float, Query(gt=0, le=100)], body: Because
) -> Sweep:
    """Change the share of a backfill. Applies from the next claim."""
    return view.operator.backfills.set_share(number, percent / 100, because=body.because)


@backfills.post("/plan", responses=problems(409, 422))
def plan_backfill(view: CurrentView, body: BackfillPlanBody) -> PlanSummary:
    """Plan a backfill. Changes nothing."""
    return PlanSummary.of(_plan_backfill(view, body))


@backfills.post("", responses=problems(409, 422))
def start_backfill(view: CurrentView, body: BackfillBody) -> Sweep:
    """Start a backfill as a sweep, which workers carry out. Its progress is at /api/sweeps."""
    plan = _plan_backfill(view, body)
    check_maximum(plan.count, body.max)
    return view.operator.begin(
        plan, because=body.because, seen=body.seen, rate=body.rate, canary=body.canary
    )


def _plan_action(view: CurrentView, act: Action, body: PartitionActionBody) -> Plan:
    selection = select_partitions(
        body.keys,
        source=body.source or None,
        query=body.query or None,
        customers=body.customers,
        since=body.since,
        until=body.until,
        status=body.status,
    )
    operations = view.operator.partitions
    if act == "retry":
        return operations.retry(
            selection, clear_terminal=body.clear_terminal, include_marked=body.include_marked
        )
    if act == "reprocess":
        return operations.reprocess(selection)
    return operations.revalidate(selection)


def _plan_backfill(view: CurrentView, body: BackfillPlanBody) -> Plan:
    return view.operator.backfills.plan(
        label(body.source, body.query),
        body.since,
        body.until,
        customers=body.customers or None,
        share=body.share,
        again=body.again,
        clear_terminal=body.clear_terminal,
    )
