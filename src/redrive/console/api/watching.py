"""Monitoring: overview, failures, workers, schedules, batches and log records."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from ...ops.batches import Batch, GivenUp
from ...ops.overview.failures import Failure, FailureReport
from ...ops.overview.journal import Happening
from ...ops.overview.overview import Overview
from ...ops.partitions.rejections import Rejection
from ...ops.schedules import Schedule
from ...ops.workers import Workers
from ..render.problem import missing
from .word import Here, Limit, Since, Text, problems

router = APIRouter(prefix="/api", tags=["monitoring"], responses=problems())
Event = Literal["submitted", "failed", "lost", "returned", "done", "dead", "rejected", "decided"]
Few = Annotated[int, Query(ge=1, le=500, description="Maximum number.")]


@router.get("/overview")
def overview(view: Here) -> Overview:
    """Return counts by job type, and problems with their start and trend. Its cost does not depend on the size of the ledger."""
    return view.ops.overview.summary()


@router.get("/failures", responses=problems(422))
def failures(view: Here, kind: Text = None, since: Since = None, limit: Limit = 100) -> list[Failure]:
    """List failures of jobs by type and error group. Partitions have their own list."""
    return view.ops.overview.failures(kind=kind, since=since, limit=limit)


@router.get("/failures/partitions", responses=problems(422))
def rejections(view: Here, dataset: Text = None, since: Since = None, limit: Limit = 100) -> list[Rejection]:
    """List failures of partitions by dataset (such as crm/orders) and error, from the last 50 of each dataset."""
    return view.ops.overview.rejections(dataset=dataset, since=since, limit=limit)


@router.get("/failures/one", responses=problems(404, 422))
def failure(view: Here, kind: Text = None, signature: Text = None, limit: Limit = 50) -> FailureReport:
    """Show one error group with its latest dead letters."""
    found = view.ops.overview.failure(kind or "", signature or "", limit=limit)
    if found is None:
        raise missing("no stored failure matches; groups are kept for 31 days")
    return found


@router.get("/workers")
def workers(view: Here) -> Workers:
    """List workers with their current work."""
    return view.ops.workers.find()


@router.get("/schedules")
def schedules(view: Here) -> list[Schedule]:
    """List schedules with next and last runs."""
    return view.ops.overview.schedules()


@router.get("/batches")
def batches(view: Here) -> list[Batch]:
    """Count the items of every batch by state."""
    return view.ops.batches.find()


@router.get("/batches/giveups", responses=problems(422))
def giveups(view: Here, batch: Text = None, reason: Text = None, since: Since = None, limit: Limit = 100) -> list[GivenUp]:
    """List given-up items, newest first."""
    return view.ops.batches.given_up(batch=batch, reason=reason, since=since, limit=limit)


@router.get("/journal", responses=problems(422))
def journal(view: Here, kind: Text = None, event: Event | None = None, since: Since = None, limit: Few = 100) -> list[Happening]:
    """List log records of jobs, decisions and rejected partitions, newest first."""
    return view.ops.overview.journal(kind=kind, events=() if event is None else (event,), since=since, limit=limit)
