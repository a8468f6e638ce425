"""Tools that change something, in two steps: a plan that shows what would happen, then apply.

The digest of a plan covers the act, its options, and the things that it would change with their
state. `apply_plan` takes a digest and a reason, and nothing else. It looks at the things again, and
refuses if they have changed. So an agent can do nothing that was not shown.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from ..errors import Drift, NotAllowed
from ..ops import JobFilter, Sweep
from ..ops.context import MAX_REPLAYS, check_reason
from ..ops.controls.model import Scope
from ..ops.dead_letters.model import DeadLetterFilter
from ..ops.operator import Operator
from ..ops.plans.plan import Plan
from ..ops.render import document, parse_future_time
from .read_tools import (
    SEARCH_HELP,
    LetterSelection,
    PartitionSelection,
    job_lines,
    letter_lines,
)
from .tool import Id, OneArguments, Tool, ToolArguments

MAX_PLAN = 10_000
SAMPLE_SIZE = 5
PLAN_SECONDS = 30 * 60.0
"""How long a plan can be applied."""
MAX_PLANS = 50
"""Plans that are kept. The oldest ones go first."""
MAX_LISTED = 20
"""Errors and skipped things that a plan lists."""

PlanLimit = Annotated[int, Field(ge=1, le=MAX_PLAN, description="Maximum number, oldest first")]
Rate = Annotated[float | None, Field(gt=0, le=1e6, description="Maximum number in a second")]
Canary = Annotated[
    int, Field(ge=0, le=MAX_PLAN, description="Do this many first; go on only if all succeed")
]
Ids = Annotated[list[Id], Field(max_length=1000)]


class LetterPlanArguments(LetterSelection):
    """The dead letters to replay or discard. Pass ids, or narrow them down."""

    ids: Ids = Field(default_factory=list)
    limit: PlanLimit = 1000
    rate: Rate = None


class ReplayPlanArguments(LetterPlanArguments):
    """The dead letters to replay, and how."""

    canary: Canary = 1
    max_replays: Annotated[
        int, Field(ge=0, description="Skip those that were replayed this often; 0: no limit")
    ] = MAX_REPLAYS
    as_kind: Annotated[
        str | None, Field(description="New name of a renamed command or handler")
    ] = None


class JobPlanArguments(ToolArguments):
    """The jobs to change. Pass ids, or a search."""

    act: Literal["cancel", "run_now", "reschedule", "prioritise"]
    ids: Ids = Field(default_factory=list)
    search: Annotated[str | None, Field(description=SEARCH_HELP)] = None
    due: Annotated[
        str | None, Field(description="Of reschedule: 30min, 12h (from now), or a time in UTC")
    ] = None
    priority: Annotated[
        int | None, Field(ge=-2, le=2, description="Of prioritise: -2 (first) to 2 (last)")
    ] = None
    limit: PlanLimit = 1000
    rate: Rate = None


class PausePlanArguments(ToolArguments):
    """What to pause or resume."""

    act: Literal["pause", "resume"]
    scope: Scope
    name: Annotated[
        str, Field(max_length=200, description="Of the job type, source or schedule")
    ] = ""
    until: Annotated[
        str | None, Field(description="Of a pause: 2h (from now), or a time; default: resumed")
    ] = None


class LimitPlanArguments(ToolArguments):
    """The new limit of a job type. Without concurrency and rate, the limits of the code return."""

    kind: Annotated[str, Field(min_length=1, max_length=200, description="Job type")]
    concurrency: Annotated[
        int | None, Field(ge=1, description="Maximum number of running jobs")
    ] = None
    rate: Annotated[
        float | None, Field(gt=0, description="Maximum number of starts in a second")
    ] = None


class SweepPlanArguments(OneArguments):
    """The bulk operation to pause, resume or cancel."""

    act: Literal["pause", "resume", "cancel"]
    accept_failed_canary: Annotated[
        bool, Field(description="Of resume: go on although the canary failed")
    ] = False


class PartitionPlanArguments(PartitionSelection):
    """The partitions to extract or validate again."""

    act: Literal["retry", "reprocess", "revalidate"]
    selection: Annotated[
        str, Field(description="crm/orders, or crm/acme/orders/2026-06-01..2026-06-30, * is any")
    ]
    clear_terminal: Annotated[
        bool, Field(description="Of retry: include partitions that gave up")
    ] = False
    canary: Canary = 0
    rate: Rate = None


class ApplyArguments(ToolArguments):
    """The plan to carry out, and why."""

    digest: Annotated[str, Field(description="digest of a plan of this session")]
    because: Annotated[
        str,
        Field(min_length=5, max_length=2000, description="Reason for the audit log, for people"),
    ]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that a plan describes. Immutable.

    Attributes:
        shown: What it would do, for the agent.
        look: Returns the present state of the things that it would change.
        carry_out: Does it, with a reason.
    """

    shown: dict[str, Any]
    look: Callable[[Operator], Any]
    carry_out: Callable[[Operator, str], Any]


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A proposal that was shown, with the state that it was made for. Immutable."""

    proposal: Proposal
    state: Any
    made_at: float
    """By a clock that does not jump."""

    @property
    def digest(self) -> str:
        """Digest of what was shown, and of the state."""
        text = json.dumps([document(self.proposal.shown), self.state], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class PlanDesk:
    """The plans that a session has shown, and the tools that make and apply them.

    Threads may share it.

    Args:
        monotonic: Clock for the age of plans.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._plans: dict[str, ShownPlan] = {}

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that plan a change, and the one that carries it out."""
        plans = [
            Tool(
                name,
                f"Plan to {act}. Changes nothing. Show the result to the user, then call "
                "apply_plan with its digest.",
                arguments,
                self._planner(propose),
                is_act=True,
            )
            for name, act, arguments, propose in PROPOSALS
        ]
        apply = Tool(
            "apply_plan",
            "Carry out a plan that was shown in this session. It does what the plan showed, or "
            "nothing if something has changed since. It is recorded in the audit log.",
            ApplyArguments,
            self._apply,
            is_act=True,
        )
        return (*plans, apply)

    def _planner(self, propose: Callable[..., Proposal]) -> Callable[..., dict[str, Any]]:
        def run(operator: Operator, given: Any) -> dict[str, Any]:
            proposal = propose(operator, given)
            if proposal.shown.get("count") == 0:
                return {**proposal.shown, "digest": None, "note": "nothing to do"}
            state = document(proposal.look(operator))
            plan = ShownPlan(proposal, state, self._monotonic())
            with self._lock:
                self._plans.pop(plan.digest, None)
                self._plans[plan.digest] = plan
                while len(self._plans) > MAX_PLANS:
                    del self._plans[next(iter(self._plans))]
            note = f"nothing was changed; apply_plan takes the digest for {PLAN_SECONDS / 60:g} min"
            return {**proposal.shown, "digest": plan.digest, "note": note}

        return run

    def _apply(self, operator: Operator, given: ApplyArguments) -> dict[str, Any]:
        check_reason(given.because)
        with self._lock:
            plan = self._plans.get(given.digest)
        if plan is None or self._monotonic() - plan.made_at > PLAN_SECONDS:
            raise NotAllowed(
                "no such plan: it was not made in this session, has expired, or was applied; make "
                "a plan with a plan_ tool, and pass its digest; nothing was changed"
            )
        if document(plan.proposal.look(operator)) != plan.state:
            raise Drift(
                "something that the plan would change has changed since it was shown; make a new "
                "plan; nothing was changed"
            )
        with self._lock:
            if self._plans.pop(given.digest, None) is None:
                raise NotAllowed("the plan is being applied already; nothing was changed twice")
        result = plan.proposal.carry_out(operator, given.because)
        return {"done": plan.proposal.shown, "result": result}


def _bulk(
    operator: Operator,
    make: Callable[[Any], Plan],
    frozen: Callable[[Plan], Any],
    sample: Callable[[Plan], Any],
    options: dict[str, Any],
) -> Proposal:
    """Return a change of many things, which a sweep carries out.

    Args:
        operator: Who plans it.
        make: Makes the plan for a filter. None: the filter of the agent.
        frozen: Returns the filter of exactly the things in a plan.
        sample: Returns some of the things, for the agent.
        options: Of the sweep.
    """
    plan = make(None)
    shown = {
        "act": plan.act,
        "count": plan.count,
        "by_type": plan.kinds,
        "by_reason": plan.reasons,
        "by_error": dict(list(plan.errors.items())[:MAX_LISTED]),
        "skipped": dict(list(plan.skipped.items())[:MAX_LISTED]),
        "beyond_the_limit": plan.beyond,
        "options": {name: value for name, value in options.items() if value is not None},
        "sample": sample(plan) if plan.count else [],
    }
    if plan.change is not None:
        shown["change"] = plan.change
    if plan.as_kind is not None:
        shown["as_kind"] = plan.as_kind
    if (of := plan.partitions) is not None:
        details = {"skipped": of.left, "without_raw": of.without_raw, "readable": of.readable}
        shown["partitions"] = details | {"clear_terminal": of.wish.clear_terminal}
    which = frozen(plan)

    def carry_out(operator: Operator, because: str) -> Sweep:
        sweep = operator.begin(make(which), because=because, seen=plan.digest, **options)
        # Workers carry out the rest. The first step is here, so that a small plan is done at once.
        step = next(iter(operator.carry_out(sweep.id)), None)
        return sweep if step is None else step.sweep

    return Proposal(shown, lambda _: make(which).digest, carry_out)


def _propose_letters(
    operator: Operator,
    given: LetterPlanArguments,
    plan: Callable[[DeadLetterFilter], Plan],
    options: dict[str, Any],
) -> Proposal:
    limit = max(given.limit, len(given.ids))
    wanted = given.to_filter(operator, ids=tuple(given.ids), limit=limit)
    return _bulk(
        operator,
        lambda which: plan(wanted if which is None else which),
        lambda made: DeadLetterFilter(ids=tuple(made.ids), limit=max(1, made.count)),
        lambda made: letter_lines(operator, tuple(made.ids[:SAMPLE_SIZE])),
        {"rate": given.rate, **options},
    )


def _propose_replay(operator: Operator, given: ReplayPlanArguments) -> Proposal:
    letters, as_kind = operator.dead_letters, given.as_kind
    options = {"canary": given.canary, "max_replays": given.max_replays or None}
    return _propose_letters(
        operator, given, lambda which: letters.replay(which, as_kind=as_kind), options
    )


def _propose_discard(operator: Operator, given: LetterPlanArguments) -> Proposal:
    return _propose_letters(operator, given, operator.dead_letters.discard, {})


def _propose_jobs(operator: Operator, given: JobPlanArguments) -> Proposal:
    jobs = operator.jobs
    wanted = JobFilter() if given.search is None else jobs.parse(given.search)
    wanted = replace(wanted, ids=(*wanted.ids, *given.ids))
    limit = max(given.limit, len(given.ids))
    due = None if given.due is None else parse_future_time(given.due, operator.now())

    def make(which: JobFilter | None) -> Plan:
        which = wanted if which is None else which
        if given.act == "cancel":
            return jobs.cancel(which, limit=limit)
        if given.act == "run_now":
            return jobs.run_now(which, limit=limit)
        if given.act == "reschedule":
            if due is None:
                raise ValueError("due: missing; pass the new time, such as 2h")
            return jobs.reschedule(which, due, limit=limit)
        if given.priority is None:
            raise ValueError("priority: missing; pass a number from -2 (first) to 2 (last)")
        return jobs.prioritise(which, given.priority, limit=limit)

    return _bulk(
        operator,
        make,
        lambda plan: JobFilter(ids=tuple(plan.ids)),
        lambda plan: job_lines(operator, tuple(plan.ids[:SAMPLE_SIZE])),
        {"rate": given.rate},
    )


def _propose_partitions(operator: Operator, given: PartitionPlanArguments) -> Proposal:
    partitions, wanted = operator.partitions, given.select()

    def make(_which: Any) -> Plan:
        if given.act == "retry":
            return partitions.retry(wanted, clear_terminal=given.clear_terminal)
        return (partitions.reprocess if given.act == "reprocess" else partitions.revalidate)(wanted)

    return _bulk(
        operator,
        make,
        lambda plan: plan.selection,
        lambda plan: partitions.inspect(wanted, limit=SAMPLE_SIZE),
        {"rate": given.rate, "canary": given.canary},
    )


def _propose_pause(operator: Operator, given: PausePlanArguments) -> Proposal:
    pauses, scope, name = operator.pauses, given.scope, given.name
    until = None if given.until is None else parse_future_time(given.until, operator.now())

    def look(operator: Operator) -> Any:
        return [each for each in operator.pauses.find() if (each.scope, each.name) == (scope, name)]

    if given.act == "pause":
        pauses.check_known(scope, name)
    shown = {"act": given.act, "scope": scope, "name": name, "until": until, "now": look(operator)}

    def carry_out(operator: Operator, because: str) -> Any:
        if given.act == "pause":
            return operator.pauses.pause(scope, name, because=because, until=until)
        operator.pauses.resume(scope, name, because=because)
        return {"resumed": name or scope}

    return Proposal(shown, look, carry_out)


def _propose_limit(operator: Operator, given: LimitPlanArguments) -> Proposal:
    kind, is_reset = given.kind, given.concurrency is None and given.rate is None
    shown = {
        "act": "reset limit" if is_reset else "set limit",
        "kind": kind,
        "concurrency": given.concurrency,
        "rate": given.rate,
        "now": operator.limits.get(kind),
    }

    def carry_out(operator: Operator, because: str) -> Any:
        if is_reset:
            return operator.limits.reset(kind, because=because)
        return operator.limits.set(
            kind, because=because, concurrency=given.concurrency, rate=given.rate
        )

    return Proposal(shown, lambda operator: operator.limits.get(kind), carry_out)


def _propose_sweep(operator: Operator, given: SweepPlanArguments) -> Proposal:
    def find(operator: Operator) -> Sweep:
        report = operator.sweeps.get(given.id)
        if report is None:
            raise NotAllowed(f"bulk operation {given.id} does not exist; nothing was changed")
        return report.sweep

    sweep = find(operator)
    names = ("act", "actor", "because", "selection", "rate", "total", "left")
    shown = {
        "act": f"{given.act} bulk operation",
        "id": given.id,
        "accept_failed_canary": given.accept_failed_canary,
        "now": sweep.state,
        "of": {name: getattr(sweep, name) for name in names},
    }

    def carry_out(operator: Operator, because: str) -> Sweep:
        if given.act == "resume":
            return operator.sweeps.resume(
                given.id, because=because, accept_failed_canary=given.accept_failed_canary
            )
        act = operator.sweeps.pause if given.act == "pause" else operator.sweeps.cancel
        return act(given.id, because=because)

    return Proposal(shown, lambda operator: find(operator).state, carry_out)


PROPOSALS: tuple[tuple[str, str, type[ToolArguments], Callable[..., Proposal]], ...] = (
    (
        "plan_replay",
        "replay dead letters, so that their jobs run again",
        ReplayPlanArguments,
        _propose_replay,
    ),
    ("plan_discard", "discard dead letters for good", LetterPlanArguments, _propose_discard),
    (
        "plan_job_change",
        "cancel, run now, reschedule or reprioritise jobs that have not ended",
        JobPlanArguments,
        _propose_jobs,
    ),
    (
        "plan_partitions",
        "extract failed or accepted partitions again, or validate them again",
        PartitionPlanArguments,
        _propose_partitions,
    ),
    (
        "plan_pause",
        "pause or resume the app, a job type, a source or a schedule",
        PausePlanArguments,
        _propose_pause,
    ),
    (
        "plan_limit",
        "change the limits of a job type at run time",
        LimitPlanArguments,
        _propose_limit,
    ),
    (
        "plan_sweep_change",
        "pause, resume or cancel a bulk operation",
        SweepPlanArguments,
        _propose_sweep,
    ),
)
"""Name of the tool, what it plans, its arguments, and the function that makes the proposal."""
