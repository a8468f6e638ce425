"""Erase: what the ledger knows of one user, looked at and taken out. Their name stands in no address: those are logged."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ...errors import Drift
from ...ops.erase import Erasure
from ...ops.plan import agreed
from ..command import command
from ..view import Here, View

router = APIRouter()


@router.get("/erase")
def asked(view: Here) -> Response:
    """Whose?"""
    return _page(view)


@router.post("/erase/plan")
def plan(view: Here) -> Response:
    """What would be erased, and what would be left; nothing is changed by looking."""
    user = view.form.get("user", "").strip()
    if not user:
        return _page(view, said="Say whose: as their work has them in its key, or as its `user_id`.", status=422)
    return _page(view, view.ops.erasing(user))


@router.post("/erase/apply")
def erase(view: Here) -> Response:
    """Take it out, if there still is as much as was looked at and the number was typed."""
    form = view.form
    made = view.ops.erasing(form.get("user", ""))
    try:
        if not form.get("because", "").strip():
            raise ValueError("Say why: the audit will have it. Nothing was done.")
        if form.get("seen", "") != str(made.count):
            raise Drift(f"There are {made.count:,} rows now: look again. Nothing was done.")
        if not agreed(made, form.get("typed", "")):
            raise ValueError(f"Type {made.count} to erase {'it' if made.count == 1 else 'them'}. Nothing was done.")
    except (ValueError, Drift) as wrong:
        return _page(view, made, str(wrong), 409 if isinstance(wrong, Drift) else 422)
    view.ops.erase(made, because=form["because"])
    left = f" Left: {len(made.busy) + made.held:,} that are not over." if made.busy or made.held else ""
    return view.to("/erase", said=f"Erased: {made.count:,} {'row' if made.count == 1 else 'rows'}.{left}")


def _page(view: View, made: Erasure | None = None, said: str | None = None, status: int = 200) -> Response:
    user = "NAME" if made is None else made.user
    line = command("erase", user=user, because=view.form.get("because") or "...")
    return view.page("erase.html", code=status, plan=made, said=said, line=line, because=view.form.get("because", ""))
