"""Changes of jobs that have not ended: plan, cancel, run now, reschedule, reprioritise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field

from ...errors import NotAllowed
from ...ops import JobFilter, Sweep
from ...ops.plans.plan import Plan
from ..queries import JobQuery
from ..view import CurrentView
from .dead_letters import PlanLimit, PlanSummary
from .schema import Because, Id, Maximum, Rate, check_maximum, problems

router = APIRouter(prefix="/api/jobs", tags=["jobs"], responses=problems())

Priority = Annotated[int, Field(ge=-2, le=2, description="From -2 (first) to 2 (last).")]
MAX_REASONS = 20
"""Jobs that an error names."""
Due = Annotated[AwareDatetime, Field(description="With a time zone.")]


class JobSelection(JobQuery):
    """The jobs to change."""

    ids: Annotated[list[Id], Field(max_length=10_000)] = Field(default_factory=list)
    limit: PlanLimit = 1000

    def select(self, view: CurrentView) -> JobFilter:
        """Return the filter of the plan."""
        wanted = self.to_filter(view.operator.jobs.parse)
        return replace(wanted, ids=(*wanted.ids, *self.ids))

    @property
    def most(self) -> int:
        """The limit, which never cuts off named jobs."""
        return max(self.limit, len(self.ids))


@dataclass(frozen=True, slots=True)
class JobSweep(Sweep):
    """A bulk operation on jobs, and the named jobs that it leaves out."""

    unchanged: Mapping[int, str] = field(default_factory=dict)
    """By job id: why it is not part of the sweep."""


class PlanQuery(JobSelection):
    """The plan to make."""

    act: Literal["cancel", "run_now", "reschedule", "prioritise"]
    due: Due | None = None
    priority: Priority | None = None


class ChangeBody(JobSelection, Because):
    """The selected jobs, the reason and the options."""

    max: Maximum | None = None
    """Change nothing if more jobs match. Required unless `ids` names them."""
    seen: str | None = None
    rate: Rate | None = None


class RescheduleBody(ChangeBody):
    """The selection and the new time."""

    due: Due


class PrioritiseBody(ChangeBody):
    """The selection and the new priority."""

    priority: Priority


@router.get("/plan", responses=problems(409, 422))
def plan(view: CurrentView, query: Annotated[PlanQuery, Query()]) -> PlanSummary:
    """Plan a change of jobs. Changes nothing."""
    wanted = query.select(view)
    return PlanSummary.of(
        make_plan(view, query.act, wanted, query.most, due=query.due, priority=query.priority)
    )


@router.post("/cancel", responses=problems(409, 422))
def cancel(view: CurrentView, body: ChangeBody) -> JobSweep:
    """Cancel jobs as a sweep: queued ones at once, running ones as soon as their workers know."""
    return _begin(view, view.operator.jobs.cancel(body.select(view), limit=body.most), body)


@router.post("/run-now", responses=problems(409, 422))
def run_now(view: CurrentView, body: ChangeBody) -> JobSweep:
    """Make queued jobs due now, as a sweep."""
    return _begin(view, view.operator.jobs.run_now(body.select(view), limit=body.most), body)


@router.post("/reschedule", responses=problems(409, 422))
def reschedule(view: CurrentView, body: RescheduleBody) -> JobSweep:
    """Change when queued jobs are due, as a sweep."""
    jobs = view.operator.jobs
    return _begin(view, jobs.reschedule(body.select(view), body.due, limit=body.most), body)


@router.post("/prioritise", responses=problems(409, 422))
def prioritise(view: CurrentView, body: PrioritiseBody) -> JobSweep:
    """Change the priority of queued jobs, as a sweep."""
    jobs = view.operator.jobs
    return _begin(view, jobs.prioritise(body.select(view), body.priority, limit=body.most), body)


def make_plan(
    view: CurrentView,
    act: str,
    wanted: JobFilter,
    limit: int,
    /,
    *,
    due: datetime | None,
    priority: int | None,
) -> Plan:
    """Make the plan of a change.

    Args:
        view: The request.
        act: The change.
        wanted: Which jobs.
        limit: Maximum number of jobs.
        due: Of a reschedule: the new time.
        priority: Of a reprioritisation: the new priority.

    Raises:
        ValueError: The time or the priority is missing.
    """
    jobs = view.operator.jobs
    if act == "cancel":
        return jobs.cancel(wanted, limit=limit)
    if act == "run_now":
        return jobs.run_now(wanted, limit=limit)
    if act == "reschedule":
        if due is None:
            raise ValueError("due: missing; pass the new time; nothing was changed")
        return jobs.reschedule(wanted, due, limit=limit)
    if priority is None:
        raise ValueError("priority: missing; pass a number from -2 to 2; nothing was changed")
    return jobs.prioritise(wanted, priority, limit=limit)


def _begin(view: CurrentView, plan: Plan, body: ChangeBody) -> JobSweep:
    check_maximum(plan.matched, body.max, named=body.ids, limit=body.limit)
    if not plan.count:
        reasons = [f"job {job_id}: {reason}" for job_id, reason in plan.skipped.items()]
        listed = "; ".join(reasons[:MAX_REASONS]) or "no job matches"
        raise NotAllowed(f"{listed}; nothing was changed")
    sweep = view.operator.begin(plan, because=body.because, rate=body.rate, seen=body.seen)
    step = next(iter(view.operator.carry_out(sweep.id)), None)
    sweep = sweep if step is None else step.sweep
    values = {each.name: getattr(sweep, each.name) for each in fields(sweep)}
    return JobSweep(**values, unchanged=plan.skipped)
