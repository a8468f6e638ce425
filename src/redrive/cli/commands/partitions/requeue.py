"""`redrive state retry`, `reprocess` and `revalidate`: queue partitions for another run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer

from ....ops.operator import Operator
from ....ops.partitions.selection import LaneName
from ....ops.plans.plan import Plan
from ...apply.confirm import ApplyOptions, Confirmation
from ...apply.dead_letters import Canary, Detach, Rate
from ...apply.partitions import (
    ClearTerminal,
    HaltOn,
    IncludeMarked,
    OptionalBecause,
    PlanFile,
    SavePlan,
    WithoutRaw,
    apply_plan,
)
from ...options import WriteOptions, open_operator, option
from .selection import PartitionOptions

Grant = Annotated[
    int | None,
    option(
        "--grant",
        "N",
        "New attempts for each partition, also for those that gave up (default: the policy's)",
        min=1,
    ),
]
ToLane = Annotated[
    LaneName | None, typer.Option("--to-lane", help="Target lane", show_default=False)
]


@dataclass(frozen=True, slots=True)
class RequeueOptions:
    """How a plan is saved, or its sweep is run."""

    save: SavePlan = False
    file: PlanFile = None
    rate: Rate = None
    canary: Canary = 0
    halt_on: HaltOn = None
    detach: Detach = False


def retry(
    *,
    which: PartitionOptions,
    because: OptionalBecause = None,
    clear_terminal: ClearTerminal = False,
    include_marked: IncludeMarked = False,
    grant: Grant = None,
    without_raw: WithoutRaw = False,
    to_lane: ToLane = None,
    confirmation: Confirmation,
    requeue: RequeueOptions,
    options: WriteOptions,
) -> None:
    """Extract failed partitions again.

    Each partition gets a new run in a new folder, now. Prints a plan first. More than 20 partitions
    need a yes, more than 100 the typed number. Scripts pass --yes --max N. Running partitions are
    skipped and listed. For accepted partitions use `redrive state reprocess`. --clear-terminal
    leaves out partitions that an operator marked as given up, unless they are named one by one.

    Examples:
        redrive state retry crm/acme/orders/2026-06-01 --because "source fixed"
        redrive state retry crm/orders --reason row_count --canary 5 --because "INC-42"
        redrive state retry crm --plan

    Exit codes:
        0: all queued
        1: some or none queued, or a safety limit applied
        2: invalid option, no selection, no reason, or no interactive shell to confirm
        3: ledger not reachable, or its schema is from another version
        4: the partitions changed since the plan; nothing was done
        130: interrupted; workers continue
    """
    with open_operator(options, app_first=True) as ops:
        plan = ops.partitions.retry(
            which.selection(),
            clear_terminal=clear_terminal,
            include_marked=include_marked,
            grant=grant or 0,
            lane=to_lane,
        )
        apply = _apply_options(because, confirmation, requeue, options)
        _requeue(ops, plan, apply, requeue, without_raw=without_raw)


def reprocess(
    *,
    which: PartitionOptions,
    because: OptionalBecause = None,
    to_lane: ToLane = None,
    confirmation: Confirmation,
    requeue: RequeueOptions,
    options: WriteOptions,
) -> None:
    """Extract accepted partitions again.

    The current run stays readable until a newer run is accepted. Plan and confirmation work as in
    `redrive state retry`.

    Examples:
        redrive state reprocess crm/acme/orders/2026-06-01 --because "late rows"
        redrive state reprocess crm/orders --since 2026-06-01 --until 2026-06-30 --because "INC-42"

    Exit codes:
        0: all queued
        1: some or none queued, or a safety limit applied
        2: invalid option, no selection, no reason, or no interactive shell to confirm
        3: ledger not reachable, or its schema is from another version
        4: the partitions changed since the plan; nothing was done
        130: interrupted; workers continue
    """
    with open_operator(options, app_first=True) as ops:
        plan = ops.partitions.reprocess(which.selection(), lane=to_lane)
        _requeue(ops, plan, _apply_options(because, confirmation, requeue, options), requeue)


def revalidate(
    *,
    which: PartitionOptions,
    because: OptionalBecause = None,
    to_lane: ToLane = None,
    confirmation: Confirmation,
    requeue: RequeueOptions,
    options: WriteOptions,
) -> None:
    """Validate existing raw data again.

    The raw data is validated with the current checks. Nothing is extracted. Partitions without raw
    data are refused. Plan and confirmation work as in `redrive state retry`.

    Examples:
        redrive state revalidate crm/orders --reason row_count --because "limit raised"

    Exit codes:
        0: all queued
        1: some or none queued, or a safety limit applied
        2: invalid option, no selection, no reason, or no interactive shell to confirm
        3: ledger not reachable, or its schema is from another version
        4: the partitions changed since the plan; nothing was done
        130: interrupted; workers continue
    """
    with open_operator(options, app_first=True) as ops:
        plan = ops.partitions.revalidate(which.selection(), lane=to_lane)
        _requeue(ops, plan, _apply_options(because, confirmation, requeue, options), requeue)


def _apply_options(
    because: str | None, confirmation: Confirmation, requeue: RequeueOptions, options: WriteOptions
) -> ApplyOptions:
    return ApplyOptions(
        because, confirmation, options.as_json, requeue.detach, save=requeue.save, file=requeue.file
    )


def _requeue(
    ops: Operator, plan: Plan, apply: ApplyOptions, requeue: RequeueOptions, **limits: Any
) -> NoReturn:
    limits |= {"rate": requeue.rate, "canary": requeue.canary, "halt_on": requeue.halt_on}
    apply_plan(ops, plan, apply, **limits)
