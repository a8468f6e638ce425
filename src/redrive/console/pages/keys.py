"""Idempotency records: list, show and release them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from ...errors import NotAllowed
from ..render.problem import missing
from ..view import Here, View

router = APIRouter()
STATES = ("processing", "completed", "failed", "abandoned")


@router.get("/keys")
def keys(view: Here) -> Response:
    """Show idempotency records by domain, user and key. key= opens one."""
    key = view.text("key")
    if key is not None:
        return view.to("/keys/show", key=key)
    domain, user, limit = view.text("domain"), view.text("user"), view.number("limit", 50, most=500)
    asked = view.text("status")
    status: Any = asked if asked in STATES[:3] else None
    found = view.ops.keys.find(domain=domain, user=user, status=status, abandoned=asked == "abandoned", limit=limit)
    return view.page(
        "keys.html", found=found, domain=domain, user=user, status=status, abandoned=asked == "abandoned", limit=limit,
        states=STATES, now=view.ops.now(),
    )  # fmt: skip


@router.get("/keys/show")
def key(view: Here) -> Response:
    """Show one idempotency record."""
    return _shown(view, view.query.get("key", ""))


@router.post("/keys/release")
def release(view: Here) -> Response:
    """Delete the stored result, so that the next caller runs the operation again."""
    name, because = view.form.get("key", ""), view.form.get("because", "")
    if not because.strip():
        return _shown(view, name, "enter a reason for the audit log; nothing was changed", 422)
    try:
        view.ops.keys.release(name, because=because, force=bool(view.form.get("force")))
    except NotAllowed as refused:
        return _shown(view, name, str(refused), 409)
    return view.to("/keys", said=f"{name} released. The next caller runs the operation again.")


def _shown(view: View, name: str, said: str | None = None, status: int = 200) -> Response:
    report = view.ops.keys.get(name)
    if report is None:
        raise missing(f"idempotency record {name} does not exist")
    return view.page("key.html", code=status, report=report, one=report.key, now=report.now, said=said)
