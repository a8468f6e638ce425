"""What is going on: overview, failures, workers, schedules, batches, the journal."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from ...ops.batch import Batch, GivenUp
from ...ops.failures import Failure, FailureReport
from ...ops.journal import Happening
from ...ops.overview import Overview
from ...ops.rejections import Rejection
from ...ops.schedules import Schedule
from ...ops.workers import Workers
from ..problem import missing
from .word import Here, Limit, Since, Text, problems

router = APIRouter(prefix="/api", tags=["what is going on"], responses=problems())
Event = Literal["submitted", "failed", "lost", "returned", "done", "dead", "rejected", "decided"]
Few = Annotated[int, Query(ge=1, le=500, description="At most so many.")]


@router.get("/overview")
def overview(view: Here) -> Overview:
    """How every kind stands, what is wrong, since when, whether it grows. Costs the same whatever there is."""
    return view.ops.overview()


@router.get("/failures", responses=problems(422))
def failures(view: Here, kind: Text = None, since: Since = None, limit: Limit = 100) -> list[Failure]:
    """What jobs fail, by kind and by what the errors are alike in; partitions have their own list."""
    return view.ops.failures(kind=kind, since=since, limit=limit)


@router.get("/failures/partitions", responses=problems(422))
def rejections(view: Here, dataset: Text = None, since: Since = None, limit: Limit = 100) -> list[Rejection]:
    """What partitions fail, by dataset (such as crm/orders) and by why; of each dataset the last fifty are looked at."""
    return view.ops.rejections(dataset=dataset, since=since, limit=limit)


@router.get("/failures/one", responses=problems(404, 422))
def failure(view: Here, kind: Text = None, signature: Text = None, limit: Limit = 50) -> FailureReport:
    """One of them, with the last of its dead letters."""
    found = view.ops.failure(kind or "", signature or "", limit=limit)
    if found is None:
        raise missing("nothing failed like this, as far as anybody remembers")
    return found


@router.get("/workers")
def workers(view: Here) -> Workers:
    """Who works, or did, and what each has in its hands."""
    return view.ops.workers()


@router.get("/schedules")
def schedules(view: Here) -> list[Schedule]:
    """What fires by itself."""
    return view.ops.schedules()


@router.get("/batches")
def batches(view: Here) -> list[Batch]:
    """How the items of every batch stand."""
    return view.ops.batches()


@router.get("/batches/giveups", responses=problems(422))
def giveups(view: Here, batch: Text = None, reason: Text = None, since: Since = None, limit: Limit = 100) -> list[GivenUp]:
    """Items that were given up, the newest first."""
    return view.ops.giveups(batch=batch, reason=reason, since=since, limit=limit)


@router.get("/journal", responses=problems(422))
def journal(view: Here, kind: Text = None, event: Event | None = None, since: Since = None, limit: Few = 100) -> list[Happening]:
    """What happened last, to any job, what was decided, and which partitions were rejected; the newest first."""
    return view.ops.journal(kind=kind, events=() if event is None else (event,), since=since, limit=limit)
