"""The audit log: who decided what, when and why; and whether an entry was changed."""

from __future__ import annotations

from fastapi import APIRouter

from ...ops.audit import Chain, Decision
from .word import Here, Limit, Since, Text, problems

router = APIRouter(prefix="/api/audit", tags=["audit"], responses=problems())


@router.get("", responses=problems(422))
def audit(
    view: Here, by: Text = None, action: Text = None, since: Since = None, limit: Limit = 100, people: bool = False
) -> list[Decision]:
    """List audit log entries, newest first. people: omit decisions of policies."""
    return view.ops.audit.find(actor=by, action=action, since=since, limit=limit, people=people)


@router.get("/verify", responses=problems(422))
def verify(view: Here, anchor: Text = None) -> Chain:
    """Verify the whole hash chain. anchor: the anchor of an earlier verification."""
    return view.ops.audit.verify(anchor)
