"""Dead letters: list, plan, replay and discard them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field

from ...errors import NotAllowed
from ...ops.dead_letters.model import DeadLetterFilter, Group, Letter, LetterReport, Revealed
from ...ops.defaults import MAX_REPLAYS
from ...ops.plans.plan import Plan
from ...ops.sweeps import Sweep
from ..render.problem import missing
from .word import Because, Body, Here, Letters, Limit, Number, Said, Since, Text, problems

router = APIRouter(prefix="/api/dead", tags=["dead letters"], responses=problems())
Some = Annotated[int, Field(ge=1, le=2**63 - 1)]
Most = Annotated[int, Query(ge=1, le=1_000_000, description="Maximum number, oldest first.")]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan. Making it changes nothing."""

    act: str
    count: int
    kinds: Mapping[str, int]
    reasons: Mapping[str, int]
    errors: Mapping[str, int]
    skipped: Mapping[int, str]
    more: bool
    digest: str
    """Pass it as `seen`, so that exactly the plan is carried out, or nothing."""
    upto: int | None
    """The newest dead letter of the plan. Pass it as `upto` to exclude newer ones."""
    missing_raw: Mapping[str, str]
    """Retry or revalidate: partitions that are skipped because their raw data is missing. The first 100."""
    validates: Mapping[str, str]
    """Revalidate: the run whose raw data is validated, by partition. The first 100."""

    @classmethod
    def of(cls, plan: Plan) -> Planned:
        """Make the summary without the ids."""
        upto = plan.ids[-1] if plan.ids else None
        about = plan.partitions
        validates, missing_raw = ({}, {}) if about is None else (about.validates, about.missing_raw)
        return cls(
            plan.act, plan.count, plan.kinds, plan.reasons, plan.errors, plan.skipped, plan.more, plan.digest, upto, missing_raw,
            validates,
        )  # fmt: skip


class Selected(Body):
    """The selected dead letters, the reason and the options."""

    ids: Annotated[list[Some], Field(max_length=10_000)] = Field(default_factory=list)
    kind: Said | None = None
    error: Said | None = None
    reason: Said | None = None
    since: AwareDatetime | None = None
    limit: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    upto: Some | None = None
    because: Said
    max: Annotated[int, Field(ge=0)] | None = None
    """Change nothing if more dead letters match. Required unless `ids` names them."""
    seen: str | None = None
    rate: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None


class Replayed(Selected):
    """The selection and options of a replay."""

    canary: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    max_replays: Annotated[int, Field(ge=0, le=1_000_000)] = MAX_REPLAYS
    """Skip dead letters that were already replayed this many times. 0: no limit."""


@router.get("", responses=problems(422))
def dead(
    view: Here, kind: Text = None, error: Text = None, reason: Text = None, status: Letters = "pending", since: Since = None,
    limit: Limit = 100, before: Annotated[int, Query(ge=1, le=2**63 - 1)] | None = None,
) -> list[Letter]:  # fmt: skip
    """List dead letters, newest first. `before` continues with older ones."""
    only = None if status == "all" else status
    return view.ops.dead_letters.find(
        DeadLetterFilter(kind=kind, error=error, reason=reason, since=since, limit=limit), status=only, before=before
    )


@router.get("/groups", responses=problems(422))
def groups(
    view: Here, kind: Text = None, error: Text = None, reason: Text = None, status: Letters = "pending", since: Since = None
) -> list[Group]:
    """Group the newest 1,000 dead letters by job type and error."""
    only = None if status == "all" else status
    return view.ops.dead_letters.groups(DeadLetterFilter(kind=kind, error=error, reason=reason, since=since), status=only)


@router.get("/plan", responses=problems(422))
def plan(
    view: Here, act: Literal["replay", "discard"], kind: Text = None, error: Text = None, reason: Text = None,
    since: Since = None, ids: Annotated[list[Some], Query(max_length=1000)] = [], limit: Most = 1000,  # noqa: B006
) -> Planned:  # fmt: skip
    """Plan a replay or a discard. Changes nothing."""
    planned = view.ops.dead_letters.replay if act == "replay" else view.ops.dead_letters.discard
    which = DeadLetterFilter(tuple(ids), kind, reason, error, since, max(limit, len(ids)))
    return Planned.of(planned(which))


@router.post("/replay", responses=problems(409, 422))
def replay(view: Here, body: Replayed) -> Sweep:
    """Replay dead letters: each gets a new job with the same key. Runs as a sweep, which workers carry out."""
    made = view.ops.dead_letters.replay(_selection(body))
    return _begun(view, made, body, canary=body.canary, max_replays=body.max_replays or None)


@router.post("/discard", responses=problems(409, 422))
def discard(view: Here, body: Selected) -> Sweep:
    """Discard dead letters permanently. Their job keys stay taken."""
    return _begun(view, view.ops.dead_letters.discard(_selection(body)), body)


@router.get("/{number}", responses=problems(404, 422))
def letter(view: Here, number: Number) -> LetterReport:
    """Show one dead letter, with secrets masked."""
    found = view.ops.dead_letters.get(number)
    if found is None:
        raise missing(f"dead letter {number} does not exist")
    return found


@router.post("/{number}/reveal", responses=problems(409, 422))
def reveal(view: Here, number: Number, body: Because) -> Revealed:
    """Return the payload with secrets, and record that in the audit log."""
    return view.ops.dead_letters.reveal(number, because=body.because)


def _selection(body: Selected) -> DeadLetterFilter:
    limit = max(body.limit, len(body.ids))
    return DeadLetterFilter(tuple(body.ids), body.kind, body.reason, body.error, body.since, limit, upto=body.upto)


def _begun(view: Here, made: Plan, body: Selected, **options: Any) -> Sweep:
    if not body.ids:
        if body.max is None:
            raise ValueError(f"max: missing; {made.count:,} match, so set max to the number you expect; nothing was changed")
        if made.count > body.max:
            raise NotAllowed(f"{made.count:,} match, more than max={body.max:,}; nothing was changed")
    begun = view.ops.begin(made, because=body.because, rate=body.rate, seen=body.seen, **options)
    stepped = next(iter(view.ops.carry_out(begun.id)), None)
    return begun if stepped is None else stepped.sweep
