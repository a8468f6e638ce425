"""Controls: pause and resume work by hand, limit job types at run time, and fire schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from fastapi import APIRouter, Response

from ...errors import NotAllowed
from ...ops.controls.model import SCOPES, Scope, resume_command, subject_of
from ...ops.render import parse_future_time
from ..view import CurrentView, View

router = APIRouter()
N = TypeVar("N", int, float)


@router.get("/controls")
def controls(view: CurrentView) -> Response:
    """Show pauses by hand, pauses after an outage, and limits of job types."""
    return _render(view)


@router.post("/controls/pause")
def pause(view: CurrentView) -> Response:
    """Pause the app, a job type, a source or a schedule."""
    scope, name = cast(Scope, view.field("scope")), view.field("name")
    try:
        because, until = view.reason(), view.field("until")
        end = parse_future_time(until, view.operator.now()) if until else None
        paused = view.operator.pauses.pause(
            scope, "" if scope == "app" else name, because=because, until=end
        )
    except (NotAllowed, ValueError) as error:
        return _render_error(view, error)
    subject = paused.subject[0].upper() + paused.subject[1:]
    return view.redirect("/controls", flash=f"{subject}: {paused.says}")


@router.post("/controls/resume")
def resume(view: CurrentView) -> Response:
    """Resume something that was paused by hand."""
    scope, name = cast(Scope, view.field("scope")), view.field("name")
    try:
        view.operator.pauses.resume(scope, name, because=view.reason())
    except (NotAllowed, ValueError) as error:
        return _render_error(view, error)
    return view.redirect("/controls", flash=f"Resumed: {subject_of(scope, name)}.")


@router.post("/controls/unpark")
def unpark(view: CurrentView) -> Response:
    """Resume a job type now that is paused after an outage."""
    try:
        view.operator.pauses.unpark(view.field("name"), because=view.reason())
    except (NotAllowed, ValueError) as error:
        return _render_error(view, error)
    return view.redirect("/controls", flash=f"Resumed: job type {view.field('name')}.")


@router.post("/controls/limits")
def set_limit(view: CurrentView) -> Response:
    """Set the limit of a job type at run time."""
    try:
        because = view.reason()
        concurrency, rate = view.field("concurrency"), view.field("rate")
        limit = view.operator.limits.set(
            view.field("name"),
            concurrency=_number("concurrency", concurrency, int) if concurrency else None,
            rate=_number("rate", rate, float) if rate else None,
            because=because,
        )
    except (NotAllowed, ValueError) as error:
        return _render_error(view, error)
    return view.redirect("/controls", flash=f"New limit of {limit.kind}.")


@router.post("/controls/limits/reset")
def reset_limit(view: CurrentView) -> Response:
    """Return a job type to the limits in the code."""
    name = view.field("name")
    try:
        view.operator.limits.reset(name, because=view.reason())
    except (NotAllowed, ValueError) as error:
        return _render_error(view, error)
    return view.redirect("/controls", flash=f"{name} has the limits in the code again.")


@router.post("/schedules/fire")
def fire(view: CurrentView) -> Response:
    """Start a run of a schedule now."""
    name = view.field("name")
    try:
        run = view.operator.schedules.fire(name, because=view.reason())
    except (NotAllowed, ValueError) as error:
        return _render_error(view, error)
    if run.job_id is None:
        return view.redirect(f"/sweeps/{run.sweep_id}", flash=f"Fired {name}.")
    return view.redirect(f"/jobs/{run.job_id}", flash=f"Fired {name}.")


def _number(label: str, text: str, read: Callable[[str], N]) -> N:
    try:
        return read(text.replace(",", ""))
    except ValueError:
        raise ValueError(f"invalid {label} {text!r}: use a number; nothing was changed") from None


def _render_error(view: View, error: Exception) -> Response:
    return _render(view, str(error), 409 if isinstance(error, NotAllowed) else 422)


def _render(view: View, error: str | None = None, status: int = 200) -> Response:
    operator = view.operator
    pauses = operator.pauses.find()
    summary = operator.overview.summary(busy=False)
    scope = view.field("scope") or "job type"
    return view.render(
        "controls.html",
        status=status,
        error=error,
        pauses=[(pause, resume_command(pause.scope, pause.name)) for pause in pauses],
        parked=[line for line in summary.kinds if line.parked is not None],
        limits=operator.limits.find(),
        scopes=SCOPES,
        scope=scope,
        name=view.field("name"),
        names=sorted({name for each in SCOPES for name in operator.pauses.known(each)}),
        now=summary.now,
    )
