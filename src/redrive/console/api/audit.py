"""The audit: who decided what, when and why; and whether it is as it was written."""

from __future__ import annotations

from fastapi import APIRouter

from ...ops.audit import Chain, Decision
from .word import Here, Limit, Since, Text, problems

router = APIRouter(prefix="/api/audit", tags=["audit"], responses=problems())


@router.get("", responses=problems(422))
def audit(
    view: Here, by: Text = None, action: Text = None, since: Since = None, limit: Limit = 100, people: bool = False
) -> list[Decision]:
    """The newest first. people: not what policies decided by themselves."""
    return view.ops.audit(actor=by, action=action, since=since, limit=limit, people=people)


@router.get("/verify", responses=problems(422))
def verify(view: Here, anchor: Text = None) -> Chain:
    """Follow the whole chain; anchor: what an earlier look said the last entry was."""
    return view.ops.verify(anchor)
