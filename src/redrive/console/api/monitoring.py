"""Monitoring: status, problems, overview, failures, workers, schedules, layers and log records."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ...ops.health.overview_rules import Health
from ...ops.ledger import LedgerStatus
from ...ops.overview.activity import Activity
from ...ops.overview.failures import Failure, FailureReport
from ...ops.overview.journal import JournalEntry
from ...ops.overview.overview import Overview
from ...ops.overview.schedules import Schedule
from ...ops.partitions.overview import Rejection
from ...ops.retries.retry_stacks import Stack
from ...ops.workers import Workers
from ..queries import ActivityQuery, FailureQuery, JournalQuery, Limit, RejectionQuery, Text
from ..render.errors import require
from ..view import CurrentView
from .schema import problems

router = APIRouter(prefix="/api", tags=["monitoring"], responses=problems())


@router.get("/status", tags=["ledger"])
def status(view: CurrentView) -> LedgerStatus:
    """Count jobs by type and state, and list workers and paused (parked) job types."""
    return view.operator.status()


@router.get("/doctor", tags=["ledger"])
def doctor(view: CurrentView) -> Health:
    """List problems with start time, count and fix."""
    return view.operator.health.check()


@router.get("/pulse", tags=["ledger"])
def pulse(view: CurrentView) -> dict[str, str]:
    """Return a text that differs after every change.

    Its cost does not depend on the size of the ledger.
    """
    return {"pulse": view.operator.overview.change_token()}


@router.get("/overview")
def overview(view: CurrentView) -> Overview:
    """Return counts by job type, and problems with their start and trend.

    Its cost does not depend on the size of the ledger.
    """
    return view.operator.overview.summary()


@router.get("/activity", responses=problems(422))
def activity(view: CurrentView, query: Annotated[ActivityQuery, Query()]) -> Activity:
    """Return throughput, queue wait, run time (p50, p95) and failures by cause over time.

    At most 90 points. `since` defaults to 24 hours before the end, and `kind` also takes a
    dataset, such as crm/orders. The cost does not depend on the number of jobs.
    """
    return view.operator.overview.activity(**dict(query))


@router.get("/failures", responses=problems(422))
def failures(view: CurrentView, query: Annotated[FailureQuery, Query()]) -> list[Failure]:
    """List failures of jobs by type and error group. Partitions have their own list."""
    return view.operator.overview.failures(**dict(query))


@router.get("/failures/partitions", responses=problems(422))
def rejections(view: CurrentView, query: Annotated[RejectionQuery, Query()]) -> list[Rejection]:
    """List failures of partitions by dataset (such as crm/orders) and error.

    They come from the last 50 failures of each dataset.
    """
    return view.operator.overview.rejections(**dict(query))


@router.get("/failures/one", responses=problems(404, 422))
def failure(
    view: CurrentView,
    kind: Annotated[Text, Query()] = None,
    signature: Annotated[Text, Query()] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> FailureReport:
    """Show one error group with its latest dead letters."""
    report = view.operator.overview.failure(kind or "", signature or "", limit=limit)
    return require(report, "no stored failure matches; groups are kept for 31 days")


@router.get("/workers")
def workers(view: CurrentView) -> Workers:
    """List workers with their current work."""
    return view.operator.workers.find()


@router.get("/schedules")
def schedules(view: CurrentView) -> list[Schedule]:
    """List schedules with next and last runs."""
    return view.operator.overview.schedules()


@router.get("/layers", tags=["retry layers"])
def layers(view: CurrentView) -> list[Stack]:
    """List durable attempts, and retries within one attempt, by job type."""
    return view.operator.retry_stacks()


@router.get("/journal", responses=problems(422))
def journal(view: CurrentView, query: Annotated[JournalQuery, Query()]) -> list[JournalEntry]:
    """List log records of jobs, decisions and rejected partitions, newest first."""
    events = () if query.event is None else (query.event,)
    return view.operator.overview.journal(
        kind=query.kind, events=events, since=query.since, limit=query.limit
    )
