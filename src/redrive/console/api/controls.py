"""Pauses by hand, limits at run time, and schedules that are fired by hand."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import AwareDatetime, Field

from ...ops.controls.limits import LimitLine
from ...ops.controls.model import PauseLine, Scope
from ...ops.controls.schedules import FiredRun
from ..view import CurrentView
from .schema import Because, RequestBody, Words, problems

router = APIRouter(prefix="/api", tags=["controls"], responses=problems())


class Paused(RequestBody):
    """A scope and a name."""

    scope: Scope
    name: Annotated[str, Field(max_length=200)] = ""
    """Name of the job type, source or schedule. Empty for the app."""


class PauseBody(Because, Paused):
    """A pause: the scope, the name, the end and the reason."""

    until: AwareDatetime | None = None
    """End of the pause. None: until it is resumed."""
    force: bool = False
    """Accept a name that neither the ledger nor a worker knows."""


class ResumeBody(Because, Paused):
    """A pause to end, and the reason."""


class JobTypeBody(Because):
    """A job type, and the reason."""

    name: Words


class LimitBody(JobTypeBody):
    """The new limit of a job type."""

    concurrency: int | None = None
    """Maximum number of running jobs, from 1. None: unchanged."""
    rate: Annotated[float | None, Field(allow_inf_nan=False)] = None
    """Maximum number of starts in a second, above 0. None: unchanged."""
    force: bool = False
    """Accept a job type that neither the ledger nor a worker knows."""


class ScheduleBody(Because):
    """A schedule, and the reason."""

    name: Words


@router.get("/pauses")
def pauses(view: CurrentView) -> list[PauseLine]:
    """List pauses by hand."""
    return view.operator.pauses.find()


@router.post("/pauses/pause", responses=problems(409, 422))
def pause(view: CurrentView, body: PauseBody) -> PauseLine:
    """Pause the app, a job type, a source or a schedule. Workers obey within a second."""
    return view.operator.pauses.pause(
        body.scope, body.name, because=body.because, until=body.until, force=body.force
    )


@router.post("/pauses/resume", responses=problems(409, 422))
def resume(view: CurrentView, body: ResumeBody) -> dict[str, str]:
    """Resume something that was paused by hand."""
    view.operator.pauses.resume(body.scope, body.name, because=body.because)
    return {"resumed": body.name or body.scope}


@router.post("/pauses/unpark", responses=problems(409, 422))
def unpark(view: CurrentView, body: JobTypeBody) -> dict[str, str]:
    """Resume a job type now that is paused after an outage, without a probe."""
    view.operator.pauses.unpark(body.name, because=body.because)
    return {"resumed": body.name}


@router.get("/limits")
def limits(view: CurrentView) -> list[LimitLine]:
    """List limits of job types, at run time and in the code."""
    return view.operator.limits.find()


@router.post("/limits/set", responses=problems(409, 422))
def set_limit(view: CurrentView, body: LimitBody) -> LimitLine:
    """Set the limit of a job type at run time, over all workers."""
    return view.operator.limits.set(
        body.name,
        concurrency=body.concurrency,
        rate=body.rate,
        because=body.because,
        force=body.force,
    )


@router.post("/limits/reset", responses=problems(409, 422))
def reset_limit(view: CurrentView, body: JobTypeBody) -> LimitLine:
    """Return a job type to the limits in the code."""
    return view.operator.limits.reset(body.name, because=body.because)


@router.post("/schedules/fire", responses=problems(409, 422))
def fire(view: CurrentView, body: ScheduleBody) -> FiredRun:
    """Start a run of a schedule now. Its planned runs stay as they are."""
    return view.operator.schedules.fire(body.name, because=body.because)
