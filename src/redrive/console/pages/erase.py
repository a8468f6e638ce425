"""Erase: preview and erase the data of one user. The name is in no URL, because URLs are logged."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ...core.text import pluralise
from ...errors import Drift
from ...ops.plans.plan import is_confirmed
from ...ops.user_data import Erasure
from ..render.command import command
from ..view import Here, View

router = APIRouter()


@router.get("/erase")
def asked(view: Here) -> Response:
    """Show the form."""
    return _page(view)


@router.post("/erase/plan")
def plan(view: Here) -> Response:
    """Preview what would be erased. Changes nothing."""
    user = view.form.get("user", "").strip()
    if not user:
        return _page(view, said="user: missing; enter the name as it is in job keys or in `user_id`", status=422)
    return _page(view, view.ops.user_data.plan_erasure(user))


@router.post("/erase/apply")
def erase(view: Here) -> Response:
    """Erase the data, if the number of rows has not changed and was typed."""
    form = view.form
    made = view.ops.user_data.plan_erasure(form.get("user", ""))
    try:
        if not form.get("because", "").strip():
            raise ValueError("enter a reason for the audit log; nothing was changed")
        if form.get("seen", "") != str(made.count):
            raise Drift(f"the data has changed to {pluralise(made.count, 'row')}; check the new preview; nothing was changed")
        if not is_confirmed(made.count, form.get("typed", "")):
            raise ValueError(f"type {made.count} to confirm; nothing was changed")
    except (ValueError, Drift) as wrong:
        return _page(view, made, str(wrong), 409 if isinstance(wrong, Drift) else 422)
    view.ops.user_data.erase(made, because=form["because"])
    left = f" {pluralise(len(made.busy) + made.held, 'row')} in use not erased." if made.busy or made.held else ""
    return view.to("/erase", said=f"{pluralise(made.count, 'row')} erased.{left}")


def _page(view: View, made: Erasure | None = None, said: str | None = None, status: int = 200) -> Response:
    user = "NAME" if made is None else made.user
    line = command("erase", user=user, because=view.form.get("because") or "...")
    return view.page("erase.html", code=status, plan=made, said=said, line=line, because=view.form.get("because", ""))
