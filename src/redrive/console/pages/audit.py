"""The audit log, and the erasure of a user.

The name of a user is in no URL, because URLs are logged.
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from ...core.text import pluralise
from ...errors import Drift
from ...ops.user_data import Erasure
from ..queries import AuditQuery
from ..render.fragments import PLACEHOLDER, command
from ..view import CurrentView

router = APIRouter()


@router.get("/audit")
def audit(view: CurrentView) -> Response:
    """Show decisions of people, newest first.

    ?all=1 adds those of policies, and ?verify=1 checks the hash chain.
    """
    query, anchor, chain = view.read_query(AuditQuery), view.text("anchor"), None
    try:
        chain = view.operator.audit.verify(anchor) if view.text("verify") else None
    except ValueError as error:
        view.query_error = str(error)
    people = not (view.text("all") or query.by or query.action)
    entries = view.operator.audit.find(
        actor=query.by,
        action=query.action,
        since=query.since,
        until=query.until,
        limit=query.limit,
        people=people,
    )
    return view.render(
        "audit.html",
        entries=entries,
        query=query,
        chain=chain,
        anchor=anchor,
        people=people,
        now=view.operator.now(),
    )


@router.get("/erase")
def form(view: CurrentView) -> Response:
    """Show the form."""
    return _render(view)


@router.post("/erase/plan")
def plan(view: CurrentView) -> Response:
    """Preview what would be erased. Changes nothing."""
    user = view.field("user")
    if not user:
        error = "user: missing; enter the name as it is in job keys or in `user_id`"
        return _render(view, error=error, status=422)
    return _render(view, view.operator.user_data.plan_erasure(user))


@router.post("/erase/apply")
def erase(view: CurrentView) -> Response:
    """Erase the data, if the number of rows has not changed and was typed."""
    plan = view.operator.user_data.plan_erasure(view.form.get("user", ""))
    rows = pluralise(plan.count, "row")
    try:
        because = view.reason()
        if view.field("seen") != str(plan.count):
            raise Drift(
                f"the data has changed to {rows}; check the new preview; nothing was changed"
            )
        view.check_typed(plan.count)
    except (ValueError, Drift) as error:
        return _render(view, plan, str(error), 409 if isinstance(error, Drift) else 422)
    view.operator.user_data.erase(plan, because=because)
    in_use = len(plan.busy) + plan.held
    rest = f" {pluralise(in_use, 'row')} in use not erased." if in_use else ""
    return view.redirect("/erase", flash=f"{rows} erased.{rest}")


def _render(
    view: CurrentView, plan: Erasure | None = None, error: str | None = None, status: int = 200
) -> Response:
    because = view.form.get("because", "")
    user = "NAME" if plan is None else plan.user
    command_line = command("erase", user=user, because=because or PLACEHOLDER)
    return view.render(
        "erase.html",
        status=status,
        plan=plan,
        error=error,
        command_line=command_line,
        because=because,
    )
