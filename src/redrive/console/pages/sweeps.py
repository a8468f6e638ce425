"""Plans and sweeps: show what a change would do, and what it has done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from ...errors import Drift, NotAllowed
from ...ops import Sweep
from ...ops.plans.plan import Plan
from ...ops.sweeps import PAST_TENSES
from ..render.errors import require
from ..view import CurrentView, RowId, View

router = APIRouter()
ACTIONS = {
    "running": ("pause", "cancel"),
    "paused": ("resume", "cancel"),
    "halted": ("resume", "cancel"),
}
"""The actions that each state allows."""
OUTCOMES_PER_PAGE = 100
ENDED_STATES = ("done", "dead again")
"""States of replayed jobs that do not change any more."""


@router.get("/sweeps")
def sweeps(view: CurrentView) -> Response:
    """Show bulk operations, newest first."""
    limit = view.number("limit", 50, maximum=500)
    operations = view.operator.sweeps.find(limit=limit)
    is_running = any(sweep.state == "running" for sweep in operations)
    return view.render(
        "sweeps.html",
        sweeps=operations,
        limit=limit,
        now=view.operator.now(),
        missing_worker=view.operator.workers.missing() if is_running else None,
    )


@router.get("/sweeps/{number}")
def sweep(view: CurrentView, number: RowId) -> Response:
    """Show one bulk operation."""
    return _render_sweep(view, number)


@router.post("/sweeps/{number}/{verb}")
def change_state(view: CurrentView, number: RowId, verb: str) -> Response:
    """Pause, resume or cancel a bulk operation."""
    accepted = view.field("accept_failed_canary") == "1"
    operations: dict[str, Callable[..., Sweep]] = {
        "pause": view.operator.sweeps.pause,
        "resume": partial(view.operator.sweeps.resume, accept_failed_canary=accepted),
        "cancel": view.operator.sweeps.cancel,
    }
    if verb not in operations:
        raise HTTPException(404, f"invalid action {verb!r}: use pause, resume or cancel")
    try:
        operations[verb](number, because=view.reason())
    except NotAllowed as error:
        return _render_sweep(view, number, str(error), 409)
    except ValueError as error:
        return _render_sweep(view, number, str(error), 422)
    return view.redirect(f"/sweeps/{number}")


def _render_sweep(
    view: CurrentView, number: int, error: str | None = None, status: int = 200
) -> Response:
    after = view.number("after", 0) - 1
    report = view.operator.sweeps.get(number, after=after, limit=OUTCOMES_PER_PAGE)
    report = require(report, f"bulk operation {number} does not exist")
    sweep = report.sweep
    is_partitions = sweep.act not in PAST_TENSES
    return view.render(
        "sweep.html",
        status=status,
        report=report,
        sweep=sweep,
        stop=view.operator.sweeps.stopped_by(sweep),
        now=report.now,
        partitions=view.operator.backfills.progress(number) if is_partitions else None,
        missing_worker=view.operator.workers.missing() if sweep.state == "running" else None,
        error=error,
        after=after,
        page_size=OUTCOMES_PER_PAGE,
        has_open_jobs=any(name not in ENDED_STATES for name in report.jobs),
        actions=ACTIONS.get(sweep.state, ()),
        past_tense=PAST_TENSES.get(sweep.act, "queued"),
    )


NUMBER_FIELDS: dict[str, tuple[str, Callable[[str], float | None]]] = {
    "rate": ("rate", float),
    "canary": ("canary size", int),
    "max_replays": ("maximum of replays", lambda text: int(text) or None),
}
"""Label and reader of the numbers in the form. 0 replays mean no limit."""


def confirm_plan(
    view: View,
    plan: Plan,
    render: Callable[[View, Plan, str, int], Response],
    /,
    *,
    must_type: bool,
    numbers: Sequence[str],
    **options: Any,
) -> Response:
    """Start a plan, if it has not changed and the form is complete. Otherwise show it again.

    Args:
        view: The request with the form.
        plan: The plan, made again from the form.
        render: Shows the plan with an error.
        must_type: Whether the operator has to type the number of items.
        numbers: Names of the numbers that the form may contain.
        options: Further options of the bulk operation.
    """
    try:
        because = view.reason()
        if must_type:
            view.check_typed(plan.count)
        options |= _read_numbers(view, numbers)
        sweep = view.operator.begin(plan, because=because, seen=view.field("seen"), **options)
    except (ValueError, Drift) as error:
        return render(view, plan, str(error), 409 if isinstance(error, Drift) else 422)
    # Carry out the first step here: small operations end at once, and workers continue large ones.
    next(iter(view.operator.carry_out(sweep.id)), None)
    return view.redirect(f"/sweeps/{sweep.id}")


def _read_numbers(view: View, names: Sequence[str]) -> dict[str, float | None]:
    numbers = {}
    for name in names:
        label, read = NUMBER_FIELDS[name]
        text = view.field(name)
        if text:
            try:
                numbers[name] = read(text)
            except ValueError:
                raise ValueError(
                    f"invalid {label} {text!r}: use a number; nothing was changed"
                ) from None
    return numbers
