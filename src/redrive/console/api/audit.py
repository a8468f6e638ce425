"""The audit log: list entries, and verify that none was changed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from ...ops.audit import Chain, Decision
from ..queries import AuditQuery, Text
from ..view import CurrentView
from .schema import problems

router = APIRouter(prefix="/api/audit", tags=["audit"], responses=problems())


class AuditList(AuditQuery):
    """The entries to list."""

    people: Annotated[bool, Field(description="Omit decisions of policies.")] = False


@router.get("", responses=problems(422))
def audit(view: CurrentView, query: Annotated[AuditList, Query()]) -> list[Decision]:
    """List audit log entries, newest first."""
    return view.operator.audit.find(
        actor=query.by,
        action=query.action,
        since=query.since,
        until=query.until,
        limit=query.limit,
        people=query.people,
    )


@router.get("/verify", responses=problems(422))
def verify(view: CurrentView, anchor: Annotated[Text, Query()] = None) -> Chain:
    """Verify the whole hash chain. anchor: the anchor of an earlier verification."""
    return view.operator.audit.verify(anchor)
