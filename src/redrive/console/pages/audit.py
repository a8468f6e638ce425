"""Audit log: list decisions, and verify that no entry was changed."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..queries import AuditQuery
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
