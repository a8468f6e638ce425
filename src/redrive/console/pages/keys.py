"""Keys: what is stored under each idempotency key, who holds it; and how one is made free."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from ...errors import NotAllowed
from ..problem import missing
from ..view import Here, View

router = APIRouter()
STATES = ("processing", "completed", "failed", "abandoned")


@router.get("/keys")
def keys(view: Here) -> Response:
    """The list, by domain, user and key; or one that was typed."""
    key = view.text("key")
    if key is not None:
        return view.to("/keys/show", key=key)
    domain, user, limit = view.text("domain"), view.text("user"), view.number("limit", 50, most=500)
    asked = view.text("status")
    status: Any = asked if asked in STATES[:3] else None
    found = view.ops.keys(domain=domain, user=user, status=status, abandoned=asked == "abandoned", limit=limit)
    return view.page(
        "keys.html", found=found, domain=domain, user=user, status=status, abandoned=asked == "abandoned", limit=limit,
        states=STATES, now=view.ops.now(),
    )  # fmt: skip


@router.get("/keys/show")
def key(view: Here) -> Response:
    """One of them."""
    return _shown(view, view.query.get("key", ""))


@router.post("/keys/release")
def release(view: Here) -> Response:
    """Forget what is known of it, so that the next caller begins anew."""
    name, because = view.form.get("key", ""), view.form.get("because", "")
    if not because.strip():
        return _shown(view, name, "Say why: the audit will have it. Nothing was done.", 422)
    try:
        view.ops.release(name, because=because, force=bool(view.form.get("force")))
    except NotAllowed as refused:
        return _shown(view, name, str(refused), 409)
    return view.to("/keys", said=f"{name} is free: the next caller begins anew.")


def _shown(view: View, name: str, said: str | None = None, status: int = 200) -> Response:
    report = view.ops.key(name)
    if report is None:
        raise missing(f"Nothing is stored under {name}.")
    return view.page("key.html", code=status, report=report, one=report.key, now=report.now, said=said)
