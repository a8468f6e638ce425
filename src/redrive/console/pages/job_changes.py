"""Cancel, run now, reschedule and reprioritise jobs: the plan and its confirmation."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from fastapi import APIRouter, Response

from ...ops import JobFilter
from ...ops.plans.plan import Plan
from ...ops.render import parse_future_time, utc
from ..api.job_changes import make_plan
from ..queries import JobQuery
from ..render.fragments import PLACEHOLDER, command
from ..view import CurrentView, View, read_number
from .dead_letters import PLAN_LIMIT, read_ids
from .sweeps import confirm_plan

router = APIRouter()

ACTS = {
    "cancel": "Cancel",
    "run_now": "Run now",
    "reschedule": "Reschedule",
    "prioritise": "Prioritise",
}
"""The label of each action."""


@router.get("/jobs/plan")
def plan(view: CurrentView) -> Response:
    """Preview a change of jobs, with the form that confirms it."""
    due, error = _read_due(view)
    return _render_plan(view, _make_plan(view, due), error, 200 if error is None else 422)


@router.post("/jobs/apply")
def apply(view: CurrentView) -> Response:
    """Carry out the plan, if it has not changed and the number was typed."""
    due, error = _read_due(view)
    plan = _make_plan(view, due)
    if error is not None:
        return _render_plan(view, plan, f"{error}; nothing was changed", 422)
    must_type = not plan.selection.ids
    return confirm_plan(view, plan, _render_plan, must_type=must_type, numbers=("rate",))


def _make_plan(view: View, due: datetime | None) -> Plan:
    """Make the plan of a query or a form. ValueError: the selection is empty or invalid."""
    act = view.field("act")
    if act not in ACTS:
        raise ValueError(f"invalid action {act!r}: use {', '.join(ACTS)}")
    fields = {name: view.field(name) for name in ("q", "state", "kind") if view.field(name)}
    wanted = JobQuery.model_validate(fields).to_filter(view.operator.jobs.parse)
    ids = read_ids(view.field("ids"))
    limit = read_number(view.field("limit"))
    return make_plan(
        view,
        act,
        replace(wanted, ids=(*wanted.ids, *ids)),
        max(PLAN_LIMIT if limit is None else limit, len(ids)),
        due=due,
        priority=_read_priority(view),
    )


def _read_due(view: View) -> tuple[datetime | None, str | None]:
    """Return the new time, and its problem. The plan is for now until a valid time is entered."""
    if view.field("act") != "reschedule":
        return None, None
    text, now = view.field("due"), view.operator.now()
    if not text:
        return now, "enter the new time" if view.request.method == "POST" else None
    try:
        due = parse_future_time(text, now)
    except ValueError as problem:
        return now, str(problem)
    if due < now:
        return now, f"{utc(due)} UTC has passed; use a time to come, or run the jobs now"
    return due, None


def _due_text(view: View) -> str:
    """Return the new time as it was entered, or a placeholder if it is not valid."""
    is_valid = _read_due(view)[1] is None
    return view.field("due") if is_valid and view.field("due") else PLACEHOLDER


def _read_priority(view: View) -> int | None:
    text = view.field("priority") or "0"
    if view.field("act") != "prioritise":
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"invalid priority {text!r}: use a number from -2 to 2") from None


def _render_plan(view: View, plan: Plan, error: str | None = None, status: int = 200) -> Response:
    selection = plan.selection
    assert isinstance(selection, JobFilter)
    query = {name: view.field(name) or None for name in ("q", "state", "kind")}
    values = {
        "at": _due_text(view) if plan.act == "reschedule" else None,
        "priority": view.field("priority") or "0" if plan.act == "prioritise" else None,
    }
    because = view.fields.get("because") or PLACEHOLDER
    verb = plan.act.replace("_", "-")
    filter_ = {"kind": selection.kind, "state": selection.state}
    command_line = command(
        "jobs", verb, *selection.ids, **values, **filter_, because=because, detach=True
    )
    return view.render(
        "job_plan.html",
        status=status,
        plan=plan,
        label=ACTS[plan.act],
        query=query,
        priorities=range(-2, 3),
        command_line=command_line if not query["q"] else None,
        error=error,
    )
