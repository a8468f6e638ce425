"""The audit log, and the erasure of a user."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from ...ops.audit import Chain, Decision
from ...ops.user_data import Erasure
from ..queries import AuditQuery, Text
from ..view import CurrentView
from .schema import Because, Maximum, RequestBody, Words, check_maximum, problems

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


erase_router = APIRouter(prefix="/api/erase", tags=["data erasure"], responses=problems())


class UserBody(RequestBody):
    """The user, in the body because URLs are logged."""

    user: Words


class EraseBody(Because, UserBody):
    """The user and the reason. The reason stays in the audit log, so leave the name out of it."""

    max: Maximum
    """Change nothing if there are more rows."""


@dataclass(frozen=True, slots=True)
class ErasedRows:
    """The stored rows of the user."""

    count: int
    jobs: int
    letters: int
    events: int
    keys: int
    busy: tuple[int, ...]
    """Queued or running jobs, which are not erased."""
    held: int
    """Idempotency records in use, which are not erased."""
    mentions: int
    """Other rows that mention the name."""
    stays: tuple[str, ...]
    """Data that erasing does not cover."""

    @classmethod
    def of(cls, erasure: Erasure) -> ErasedRows:
        """Make the summary without the ids."""
        return cls(**{field.name: getattr(erasure, field.name) for field in fields(cls)})


@erase_router.post("/plan", responses=problems(422))
def plan(view: CurrentView, body: UserBody) -> ErasedRows:
    """Preview what would be erased. Changes nothing."""
    return ErasedRows.of(view.operator.user_data.plan_erasure(body.user))


@erase_router.post("", responses=problems(409, 422))
def erase(view: CurrentView, body: EraseBody) -> ErasedRows:
    """Erase the data permanently. Recorded in the audit log without the name."""
    erasure = view.operator.user_data.plan_erasure(body.user)
    check_maximum(erasure.count, body.max, noun="rows match")
    if erasure.count:
        view.operator.user_data.erase(erasure, because=body.because)
    return ErasedRows.of(erasure)
