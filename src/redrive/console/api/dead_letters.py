"""Dead letters, and the sweeps over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query
from pydantic import Field

from ...ops import Sweep
from ...ops.context import MAX_REPLAYS
from ...ops.dead_letters.model import DeadLetterFilter, Group, Letter, LetterReport, Revealed
from ...ops.plans.plan import Plan
from ...ops.sweeps import SweepReport
from ..queries import DeadLetterListQuery, DeadLetterQuery, Limit, Text
from ..render.errors import require
from ..view import CurrentView, RowId
from .schema import Because, Canary, Id, Maximum, Rate, check_maximum, problems

router = APIRouter(prefix="/api/dead", tags=["dead letters"], responses=problems())
PlanLimit = Annotated[int, Field(ge=1, le=1_000_000, description="Maximum number, oldest first.")]


class DeadLetterList(DeadLetterListQuery):
    """The dead letters to list."""

    before: Id | None = None


class DeadLetterSelection(DeadLetterQuery):
    """The dead letters to replay or discard."""

    ids: Annotated[list[Id], Field(max_length=10_000)] = Field(default_factory=list)
    limit: PlanLimit = 1000
    upto: Id | None = None

    def select(self, view: CurrentView) -> DeadLetterFilter:
        """Return the filter of the plan. The limit never cuts off named dead letters."""
        limit, parse = max(self.limit, len(self.ids)), view.operator.jobs.parse
        return self.to_filter(parse, ids=tuple(self.ids), limit=limit, upto=self.upto)


AsKind: TypeAlias = Annotated[
    Text, Field(description="New name of a renamed command or handler, of a replay.")
]


class PlanQuery(DeadLetterSelection):
    """The plan to make."""

    act: Literal["replay", "discard"]
    as_kind: AsKind = None


class DiscardBody(DeadLetterSelection, Because):
    """The selected dead letters, the reason and the options."""

    max: Maximum | None = None
    """Change nothing if more dead letters match. Required unless `ids` names them."""
    seen: str | None = None
    rate: Rate | None = None


class ReplayBody(DiscardBody):
    """The selection and options of a replay."""

    as_kind: AsKind = None
    canary: Canary = 0
    max_replays: Annotated[int, Field(ge=0, le=1_000_000)] = MAX_REPLAYS
    """Skip dead letters that were already replayed this many times. 0: no limit."""
    fresh: bool = False
    """Repeat finished steps, instead of reusing their results."""


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A plan. Making it changes nothing."""

    act: str
    count: int
    kinds: Mapping[str, int]
    reasons: Mapping[str, int]
    errors: Mapping[str, int]
    skipped: Mapping[int, str]
    more: bool
    matched: int
    """Number of items that match, including those beyond the limit."""
    digest: str
    """Pass it as `seen`, so that exactly the plan is carried out, or nothing."""
    as_kind: str | None
    """Of a replay: job type of the new jobs, if it was renamed."""
    upto: int | None
    """The newest dead letter of the plan. Pass it as `upto` to exclude newer ones."""
    missing_raw: Mapping[str, str]
    """Retry or revalidate: partitions skipped because their raw data is missing. The first 100."""
    validates: Mapping[str, str]
    """Revalidate: the run whose raw data is validated, by partition. The first 100."""

    @classmethod
    def of(cls, plan: Plan) -> PlanSummary:
        """Make the summary without the ids."""
        partitions = plan.partitions
        return cls(
            act=plan.act,
            count=plan.count,
            kinds=plan.kinds,
            reasons=plan.reasons,
            errors=plan.errors,
            skipped=plan.skipped,
            more=plan.more,
            matched=plan.matched,
            digest=plan.digest,
            as_kind=plan.as_kind,
            upto=plan.ids[-1] if plan.ids else None,
            missing_raw={} if partitions is None else partitions.missing_raw,
            validates={} if partitions is None else partitions.validates,
        )


@router.get("", responses=problems(422))
def dead_letters(view: CurrentView, query: Annotated[DeadLetterList, Query()]) -> list[Letter]:
    """List dead letters, newest first. `before` continues with older ones."""
    filter_ = query.to_filter(view.operator.jobs.parse, limit=query.limit)
    return view.operator.dead_letters.find(filter_, status=query.stored_status, before=query.before)


@router.get("/groups", responses=problems(422))
def groups(view: CurrentView, query: Annotated[DeadLetterListQuery, Query()]) -> list[Group]:
    """Group the newest 1,000 dead letters by job type and error."""
    filter_ = query.to_filter(view.operator.jobs.parse)
    return view.operator.dead_letters.groups(filter_, status=query.stored_status)


@router.get("/plan", responses=problems(422))
def plan(view: CurrentView, query: Annotated[PlanQuery, Query()]) -> PlanSummary:
    """Plan a replay or a discard. Changes nothing."""
    letters = view.operator.dead_letters
    if query.act == "replay":
        return PlanSummary.of(letters.replay(query.select(view), as_kind=query.as_kind))
    return PlanSummary.of(letters.discard(query.select(view)))


@router.post("/replay", responses=problems(409, 422))
def replay(view: CurrentView, body: ReplayBody) -> Sweep:
    """Replay dead letters as a sweep, which workers carry out.

    Each dead letter gets a new job with the same key.
    """
    plan = view.operator.dead_letters.replay(body.select(view), as_kind=body.as_kind)
    limit = body.max_replays or None
    options = {"canary": body.canary, "max_replays": limit, "fresh": body.fresh}
    return _begin(view, plan, body, **options)


@router.post("/discard", responses=problems(409, 422))
def discard(view: CurrentView, body: DiscardBody) -> Sweep:
    """Discard dead letters permanently. Their job keys stay taken."""
    return _begin(view, view.operator.dead_letters.discard(body.select(view)), body)


@router.get("/{number}", responses=problems(404, 422))
def dead_letter(view: CurrentView, number: RowId) -> LetterReport:
    """Show one dead letter, with secrets masked."""
    return require(view.operator.dead_letters.get(number), f"dead letter {number} does not exist")


@router.post("/{number}/reveal", responses=problems(409, 422))
def reveal(view: CurrentView, number: RowId, body: Because) -> Revealed:
    """Return the payload with secrets, and record that in the audit log."""
    return view.operator.dead_letters.reveal(number, because=body.because)


def _begin(view: CurrentView, plan: Plan, body: DiscardBody, **options: Any) -> Sweep:
    check_maximum(plan.matched, body.max, named=body.ids, limit=body.limit)
    sweep = view.operator.begin(
        plan, because=body.because, rate=body.rate, seen=body.seen, **options
    )
    step = next(iter(view.operator.carry_out(sweep.id)), None)
    return sweep if step is None else step.sweep


sweeps_router = APIRouter(prefix="/api/sweeps", tags=["sweeps"], responses=problems())


class ResumeBody(Because):
    """The reason, and whether the rest may follow a failed canary."""

    accept_failed_canary: Annotated[
        bool,
        Field(description="Required for a sweep that its canary halted: no other canary follows."),
    ] = False


@sweeps_router.get("", responses=problems(422))
def sweeps(view: CurrentView, limit: Annotated[Limit, Query()] = 100) -> list[Sweep]:
    """List sweeps, newest first."""
    return view.operator.sweeps.find(limit=limit)


@sweeps_router.get("/{number}", responses=problems(404, 422))
def sweep(
    view: CurrentView,
    number: RowId,
    after: Annotated[int, Query(ge=-1, le=2**31)] = -1,
    limit: Annotated[Limit, Query()] = 100,
) -> SweepReport:
    """Show one sweep with the outcomes that follow the position `after`."""
    report = view.operator.sweeps.get(number, after=after, limit=limit)
    return require(report, f"sweep {number} does not exist")


@sweeps_router.post("/{number}/resume", responses=problems(409, 422))
def resume(view: CurrentView, number: RowId, body: ResumeBody) -> Sweep:
    """Resume a sweep."""
    return view.operator.sweeps.resume(
        number, because=body.because, accept_failed_canary=body.accept_failed_canary
    )


@sweeps_router.post("/{number}/{verb}", responses=problems(409, 422))
def change_state(
    view: CurrentView, number: RowId, verb: Literal["pause", "cancel"], body: Because
) -> Sweep:
    """Pause or cancel a sweep."""
    operations = {"pause": view.operator.sweeps.pause, "cancel": view.operator.sweeps.cancel}
    return operations[verb](number, because=body.because)
