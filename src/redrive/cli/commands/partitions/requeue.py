"""Requeue: `redrive state retry | reprocess | revalidate`: planned, confirmed, queued; workers do the rest."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ...apply.dead_letters import Canary, Detach, Dry, Most, Rate, Yes
from ...apply.partitions import BecauseOf, ClearTerminal, HaltOn, Keep, Out, Told, WithoutRaw, carried_out
from ...options import Actor, AsJson, Where, operator
from .selection import Customers, Error, First, InLane, Last, MinAttempts, On, Query, Source, Status, Words, which  # fmt: skip

Grant = Annotated[
    int | None,
    typer.Option(
        "--grant",
        min=1,
        metavar="N",
        help="New attempts for each partition, also for those that gave up (default: the policy's)",
        show_default=False,
    ),
]
ToLane = Annotated[
    Literal["fresh", "retry", "backfill"] | None, typer.Option("--to-lane", help="Target lane", show_default=False)
]


def retry(
    words: Words = None, source: Source = None, customer: Customers = None, query: Query = None, since: First = None,
    until: Last = None, on: On = None, status: Status = None, error: Error = None, min_attempts: MinAttempts = None,
    lane: InLane = None, because: BecauseOf = None, clear_terminal: ClearTerminal = False, grant: Grant = None,
    without_raw: WithoutRaw = False, to_lane: ToLane = None, yes: Yes = False, most: Most = None, dry_run: Dry = False,
    keep: Keep = False, out: Out = None, rate: Rate = None, canary: Canary = 0, halt_on: HaltOn = None, detach: Detach = False,
    actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Extract failed partitions again.

    Each partition gets a new run in a new folder, now. Prints a plan first. More than 20 partitions
    need a yes, more than 100 the typed number. Scripts pass --yes --max N. Running partitions are
    skipped and listed. For accepted partitions use `redrive state reprocess`.

    Examples:
        redrive state retry crm/acme/orders/2026-06-01 --because "source fixed"
        redrive state retry crm/orders --reason row_count --canary 5 --because "INC-42"
        redrive state retry crm --plan

    Exit codes:
        0: all queued
        1: some or none queued, or a safety limit applied
        2: invalid option, no selection, no reason, or no terminal for the confirmation
        3: ledger not reachable, or its schema is from another version
        4: the partitions changed since the plan; nothing was done
        130: interrupted; workers continue
    """
    with operator(where, actor, app_first=True) as ops:
        asked = which(words, source, customer, query, since, until, on, status, error, min_attempts, lane)
        plan = ops.partitions.retry(asked, clear_terminal=clear_terminal, grant=grant or 0, lane=to_lane)
        how = Told(because, yes, most, dry_run, as_json, detach, keep, out)
        carried_out(ops, plan, how, rate=rate, canary=canary, halt_on=halt_on, without_raw=without_raw)


def reprocess(
    words: Words = None, source: Source = None, customer: Customers = None, query: Query = None, since: First = None,
    until: Last = None, on: On = None, status: Status = None, error: Error = None, min_attempts: MinAttempts = None,
    lane: InLane = None, because: BecauseOf = None, to_lane: ToLane = None, yes: Yes = False, most: Most = None,
    dry_run: Dry = False, keep: Keep = False, out: Out = None, rate: Rate = None, canary: Canary = 0, halt_on: HaltOn = None,
    detach: Detach = False, actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Extract accepted partitions again.

    The current run stays readable until a newer run is accepted. Plan and confirmation work as in
    `redrive state retry`.

    Examples:
        redrive state reprocess crm/acme/orders/2026-06-01 --because "late rows"
        redrive state reprocess crm/orders --since 2026-06-01 --until 2026-06-30 --because "INC-42"

    Exit codes:
        0: all queued
        1: some or none queued, or a safety limit applied
        2: invalid option, no selection, no reason, or no terminal for the confirmation
        3: ledger not reachable, or its schema is from another version
        4: the partitions changed since the plan; nothing was done
        130: interrupted; workers continue
    """
    with operator(where, actor, app_first=True) as ops:
        asked = which(words, source, customer, query, since, until, on, status, error, min_attempts, lane)
        plan = ops.partitions.reprocess(asked, lane=to_lane)
        how = Told(because, yes, most, dry_run, as_json, detach, keep, out)
        carried_out(ops, plan, how, rate=rate, canary=canary, halt_on=halt_on)


def revalidate(
    words: Words = None, source: Source = None, customer: Customers = None, query: Query = None, since: First = None,
    until: Last = None, on: On = None, status: Status = None, error: Error = None, min_attempts: MinAttempts = None,
    lane: InLane = None, because: BecauseOf = None, to_lane: ToLane = None, yes: Yes = False, most: Most = None,
    dry_run: Dry = False, keep: Keep = False, out: Out = None, rate: Rate = None, canary: Canary = 0, halt_on: HaltOn = None,
    detach: Detach = False, actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Validate existing raw data again.

    The raw data is validated with the current checks. Nothing is extracted. Partitions without raw
    data are refused. Plan and confirmation work as in `redrive state retry`.

    Examples:
        redrive state revalidate crm/orders --reason row_count --because "limit raised"

    Exit codes:
        0: all queued
        1: some or none queued, or a safety limit applied
        2: invalid option, no selection, no reason, or no terminal for the confirmation
        3: ledger not reachable, or its schema is from another version
        4: the partitions changed since the plan; nothing was done
        130: interrupted; workers continue
    """
    with operator(where, actor, app_first=True) as ops:
        asked = which(words, source, customer, query, since, until, on, status, error, min_attempts, lane)
        plan = ops.partitions.revalidate(asked, lane=to_lane)
        how = Told(because, yes, most, dry_run, as_json, detach, keep, out)
        carried_out(ops, plan, how, rate=rate, canary=canary, halt_on=halt_on)
