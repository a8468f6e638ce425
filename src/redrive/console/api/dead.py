"""Dead letters: listed, planned on, replayed and discarded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field

from ...errors import NotAllowed
from ...ops.dead import Group, Letter, LetterReport
from ...ops.defaults import MAX_REPLAYS
from ...ops.plan import Plan
from ...ops.reveal import Revealed
from ...ops.sweep import Sweep
from ..problem import missing
from .word import Because, Body, Here, Letters, Limit, Number, Said, Since, Text, problems

router = APIRouter(prefix="/api/dead", tags=["dead letters"], responses=problems())
Some = Annotated[int, Field(ge=1, le=2**63 - 1)]
Most = Annotated[int, Query(ge=1, le=1_000_000, description="At most so many, the oldest first.")]


@dataclass(frozen=True, slots=True)
class Planned:
    """What would be done. Making a plan leaves no trace."""

    act: str
    count: int
    kinds: Mapping[str, int]
    reasons: Mapping[str, int]
    errors: Mapping[str, int]
    skipped: Mapping[int, str]
    more: bool
    digest: str
    """Give it back as `seen`: what is done is then what was planned, or nothing."""
    upto: int | None
    """The newest of them. Give it back too: what died since is not meant."""
    missing_raw: Mapping[str, str]
    """Of a retry or revalidation of partitions: those without raw data, which are skipped, and why. The first 100."""
    validates: Mapping[str, str]
    """Of a revalidation of partitions: the run whose raw data is validated, by partition. The first 100."""

    @classmethod
    def of(cls, plan: Plan) -> Planned:
        """Without the numbers of them all."""
        upto = plan.ids[-1] if plan.ids else None
        about = plan.partitions
        validates, missing_raw = ({}, {}) if about is None else (about.validates, about.missing_raw)
        return cls(
            plan.act, plan.count, plan.kinds, plan.reasons, plan.errors, plan.skipped, plan.more, plan.digest, upto, missing_raw,
            validates,
        )  # fmt: skip


class Selected(Body):
    """Which dead letters, why, and how."""

    ids: Annotated[list[Some], Field(max_length=10_000)] = Field(default_factory=list)
    kind: Said | None = None
    error: Said | None = None
    reason: Said | None = None
    since: AwareDatetime | None = None
    limit: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    upto: Some | None = None
    because: Said
    max: Annotated[int, Field(ge=0)] | None = None
    """Do nothing if there are more. Asked for unless they are named by their numbers."""
    seen: str | None = None
    rate: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None


class Replayed(Selected):
    """And of a replay:"""

    canary: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    max_replays: Annotated[int, Field(ge=0, le=1_000_000)] = MAX_REPLAYS
    """Leave alone what was replayed so often; 0: never mind."""


@router.get("", responses=problems(422))
def dead(
    view: Here, kind: Text = None, error: Text = None, reason: Text = None, status: Letters = "pending", since: Since = None,
    limit: Limit = 100, before: Annotated[int, Query(ge=1, le=2**63 - 1)] | None = None,
) -> list[Letter]:  # fmt: skip
    """The newest first; `before` goes on with older ones."""
    only = None if status == "all" else status
    return view.ops.dead(kind=kind, error=error, reason=reason, status=only, since=since, limit=limit, before=before)


@router.get("/groups", responses=problems(422))
def groups(
    view: Here, kind: Text = None, error: Text = None, reason: Text = None, status: Letters = "pending", since: Since = None
) -> list[Group]:
    """By kind and cause, of the newest thousand."""
    only = None if status == "all" else status
    return view.ops.dead_groups(kind=kind, error=error, reason=reason, status=only, since=since)


@router.get("/plan", responses=problems(422))
def plan(
    view: Here, act: Literal["replay", "discard"], kind: Text = None, error: Text = None, reason: Text = None,
    since: Since = None, ids: Annotated[list[Some], Query(max_length=1000)] = [], limit: Most = 1000,  # noqa: B006
) -> Planned:  # fmt: skip
    """What would be done, to how many."""
    planned = view.ops.replay if act == "replay" else view.ops.discard
    found = planned(ids=ids, kind=kind, error=error, reason=reason, since=since, limit=max(limit, len(ids)))
    return Planned.of(found)


@router.post("/replay", responses=problems(409, 422))
def replay(view: Here, body: Replayed) -> Sweep:
    """Give each a new job, in the old one's place and under its key: a sweep, that workers carry out."""
    made = view.ops.replay(**_selection(body))
    return _begun(view, made, body, canary=body.canary, max_replays=body.max_replays or None)


@router.post("/discard", responses=problems(409, 422))
def discard(view: Here, body: Selected) -> Sweep:
    """Drop them for good; their keys stay taken."""
    return _begun(view, view.ops.discard(**_selection(body)), body)


@router.get("/{number}", responses=problems(404, 422))
def letter(view: Here, number: Number) -> LetterReport:
    """One of them, without secrets."""
    found = view.ops.letter(number)
    if found is None:
        raise missing(f"there is no dead letter {number}")
    return found


@router.post("/{number}/reveal", responses=problems(409, 422))
def reveal(view: Here, number: Number, body: Because) -> Revealed:
    """Its payload with secrets; that it was shown is in the audit."""
    return view.ops.reveal("dead", number, because=body.because)


def _selection(body: Selected) -> dict[str, Any]:
    limit = max(body.limit, len(body.ids))
    words = {"kind": body.kind, "error": body.error, "reason": body.reason, "since": body.since}
    return {"ids": body.ids, "limit": limit, "upto": body.upto, **words}


def _begun(view: Here, made: Plan, body: Selected, **options: Any) -> Sweep:
    if not body.ids:
        if body.max is None:
            raise ValueError(f"say max, the most you want to {made.act}: {made.count:,} match. Nothing was done")
        if made.count > body.max:
            raise NotAllowed(f"{made.count:,} match, and max says {body.max:,}: nothing was done")
    begun = view.ops.begin(made, because=body.because, rate=body.rate, seen=body.seen, **options)
    stepped = next(iter(view.ops.carry_out(begun.id)), None)
    return begun if stepped is None else stepped.sweep
