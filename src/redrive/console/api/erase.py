"""Erase: what the ledger knows of one user, taken out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from ...errors import NotAllowed
from ...ops.erase import Erasure
from .word import Because, Body, Here, Said, problems

router = APIRouter(prefix="/api/erase", tags=["one user's data"], responses=problems())


class Whose(Body):
    """Whose data: in the body, since addresses are logged."""

    user: Said


class Erased(Because):
    """Whose, and why. Keep their name out of the reason: it stays in the audit."""

    user: Said
    max: Annotated[int, Field(ge=0)]
    """Do nothing if there are more rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What there is, or was, of theirs."""

    count: int
    jobs: int
    letters: int
    events: int
    keys: int
    busy: tuple[int, ...]
    """Jobs that wait or run: left."""
    held: int
    """Keys that somebody is at: left."""
    mentions: int
    """Other rows with the name in a text."""
    stays: tuple[str, ...]
    """Places that are not covered."""

    @classmethod
    def of(cls, found: Erasure) -> Rows:
        """Without the numbers of them all."""
        return cls(
            found.count, found.jobs, found.letters, found.events, found.keys, found.busy, found.held, found.mentions, found.stays
        )


@router.post("/plan", responses=problems(422))
def plan(view: Here, body: Whose) -> Rows:
    """What would be erased. Leaves no trace."""
    return Rows.of(view.ops.erasing(body.user))


@router.post("", responses=problems(409, 422))
def erase(view: Here, body: Erased) -> Rows:
    """Take it out, for good; what was erased, and what was left. In the audit, without their name."""
    found = view.ops.erasing(body.user)
    if found.count > body.max:
        raise NotAllowed(f"there are {found.count:,} rows, and max says {body.max:,}: nothing was done")
    if found.count:
        view.ops.erase(found, because=body.because)
    return Rows.of(found)
