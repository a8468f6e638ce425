"""Audit log: who decided what, when and why; and whether an entry was changed since."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..view import Here

router = APIRouter()


@router.get("/audit")
def audit(view: Here) -> Response:
    """Show decisions of people, newest first. ?all=1 adds those of policies, ?verify=1 checks the hash chain."""
    actor, action, limit = view.text("by"), view.text("action"), view.number("limit", 50, most=500)
    wrong, since, chain = None, None, None
    anchor = view.text("anchor")
    try:
        since = view.since()
        chain = view.ops.audit.verify(anchor) if view.text("verify") else None
    except ValueError as said:
        wrong = str(said)
    people = not (view.text("all") or actor or action)
    found = view.ops.audit.find(actor=actor, action=action, since=since, limit=limit, people=people)
    return view.page(
        "audit.html", found=found, actor=actor, action=action, limit=limit, wrong=wrong, chain=chain, anchor=anchor,
        people=people, now=view.ops.now(),
    )  # fmt: skip
