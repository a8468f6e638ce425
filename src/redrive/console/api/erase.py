"""Erase: erase the data of one user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from ...errors import NotAllowed
from ...ops.user_data import Erasure
from .word import Because, Body, Here, Said, problems

router = APIRouter(prefix="/api/erase", tags=["data erasure"], responses=problems())


class Whose(Body):
    """The user, in the body because URLs are logged."""

    user: Said


class Erased(Because):
    """The user and the reason. The reason stays in the audit log, so leave the name out of it."""

    user: Said
    max: Annotated[int, Field(ge=0)]
    """Change nothing if there are more rows."""


@dataclass(frozen=True, slots=True)
class Rows:
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
    def of(cls, found: Erasure) -> Rows:
        """Make the summary without the ids."""
        return cls(
            found.count, found.jobs, found.letters, found.events, found.keys, found.busy, found.held, found.mentions, found.stays
        )


@router.post("/plan", responses=problems(422))
def plan(view: Here, body: Whose) -> Rows:
    """Preview what would be erased. Changes nothing."""
    return Rows.of(view.ops.user_data.plan_erasure(body.user))


@router.post("", responses=problems(409, 422))
def erase(view: Here, body: Erased) -> Rows:
    """Erase the data permanently. Recorded in the audit log without the name."""
    found = view.ops.user_data.plan_erasure(body.user)
    if found.count > body.max:
        raise NotAllowed(f"{found.count:,} rows match, more than max={body.max:,}; nothing was changed")
    if found.count:
        view.ops.user_data.erase(found, because=body.because)
    return Rows.of(found)
